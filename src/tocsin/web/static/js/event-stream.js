/** Server-sent events over fetch, so that the key is sent in a header. Reconnects and resumes. */

import { openStream } from "./request.js";

const PATH = "/api/admin/scheduler/events";
const SILENCE_MAX_MS = 60_000; // the service sends at least a comment every 25 s
const PAUSE_FIRST_MS = 1000;
const PAUSE_MAX_MS = 30_000;

/** The complete events received so far, and the incomplete rest. Pure. */
export function takeEvents(text) {
	const blocks = text.split(/\r?\n\r?\n/);
	const rest = blocks.pop();
	const dataOf = (block) => block.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
	const events = blocks.map((block) => dataOf(block).join("\n")).filter(Boolean).map((data) => JSON.parse(data));
	return { events, rest };
}

export class EventStream {
	connected = false;
	retryAt = null;
	#lastId = null;
	#failures = 0;
	#end = new AbortController();
	#wake = () => {};

	/** `received(event)` for each; `changed()` when it connects or disconnects; `refused(error)` when the key is refused. */
	constructor(key, { received, changed, refused }) {
		Object.assign(this, { key, received, changed, refused });
		this.#follow();
	}

	stop() {
		this.#end.abort();
		this.#wake();
	}

	/** Retry now. */
	retry() {
		this.#wake();
	}

	async #follow() {
		while (!this.#end.signal.aborted) {
			try {
				await this.#listen();
			} catch (error) {
				if (error.status === 401) return this.refused(error);
			}
			if (this.#end.signal.aborted) return;
			const pauseMs = Math.min(PAUSE_MAX_MS, PAUSE_FIRST_MS * 2 ** this.#failures++);
			Object.assign(this, { connected: false, retryAt: Date.now() + pauseMs });
			this.changed();
			await new Promise((resolve) => {
				this.#wake = resolve;
				setTimeout(resolve, pauseMs);
			});
		}
	}

	async #listen() {
		const silence = new AbortController();
		let watchdog;
		const heard = () => {
			clearTimeout(watchdog);
			watchdog = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
		};
		heard();
		try {
			const signal = AbortSignal.any([this.#end.signal, silence.signal]);
			const response = await openStream(PATH, { key: this.key, lastEventId: this.#lastId, signal });
			Object.assign(this, { connected: true, retryAt: null });
			this.#failures = 0;
			this.changed();
			const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
			for (let rest = ""; ; ) {
				const { value, done } = await reader.read();
				if (done) return;
				heard();
				const taken = takeEvents(rest + value);
				rest = taken.rest;
				taken.events.forEach((event) => this.#take(event));
			}
		} finally {
			clearTimeout(watchdog);
		}
	}

	#take(event) {
		if (event.seq <= this.#lastId) return; // null counts as 0
		this.#lastId = event.seq;
		this.received(event);
	}
}
