/** Polls: at even intervals while it works, with growing pauses while it fails, not while the page is hidden. */

const PAUSE_FIRST_MS = 2000;
const PAUSE_MAX_MS = 60_000;

export class Poll {
	error = null;
	failingSince = null;
	nextAt = 0;
	#failures = 0;
	#timer = null;
	#round = null;
	#stopped = false;

	/** `work()` does one round; `changed()` is called after each, when `error` and `nextAt` are set. */
	constructor(work, everyMs, changed) {
		Object.assign(this, { work, everyMs, changed });
		document.addEventListener("visibilitychange", () => Date.now() >= this.nextAt && this.#look());
		addEventListener("online", () => this.now());
	}

	/** One round now; joins the one under way. */
	now() {
		if (this.#stopped) return null;
		this.#round ??= this.#once().finally(() => {
			this.#round = null;
		});
		return this.#round;
	}

	/** A new round, after the one under way. */
	async again() {
		await this.#round;
		return this.now();
	}

	stop() {
		this.#stopped = true;
		clearTimeout(this.#timer);
	}

	async #once() {
		clearTimeout(this.#timer);
		let pauseMs = this.everyMs;
		try {
			await this.work();
			this.#failures = 0;
			this.error = this.failingSince = null;
		} catch (error) {
			this.error = error;
			this.failingSince ??= Date.now();
			const wishedMs = Math.max(PAUSE_FIRST_MS * 2 ** this.#failures++, error.retryAfterMs ?? 0);
			pauseMs = Math.min(PAUSE_MAX_MS, wishedMs);
		}
		if (this.#stopped) return;
		this.nextAt = Date.now() + pauseMs;
		this.#timer = setTimeout(() => this.#look(), pauseMs);
		this.changed();
	}

	#look() {
		if (!document.hidden) this.now();
	}
}
