/** Our JSON API: one way to call it, one kind of failure. */

import { heard } from "./clock.js";

/** Why there is no answer, in a sentence. `status` 0: the service was not reached. */
export class Refused extends Error {
	constructor(sentence, { status = 0, retryAfterMs = 0 } = {}) {
		super(sentence);
		this.status = status;
		this.retryAfterMs = retryAfterMs;
	}
}

/** Returns `{body, etag}`; `body` is null if it still matches `etag`. */
export async function getJson(path, { etag, key, signal, timeoutMs = 15_000 } = {}) {
	const headers = { Accept: "application/json" };
	if (etag) headers["If-None-Match"] = etag;
	const response = await send(path, { headers: withKey(headers, key), signal: within(timeoutMs, signal) });
	if (response.status === 304) return { body: null, etag };
	return { body: await bodyOf(response), etag: response.headers.get("ETag") };
}

/** A run may take minutes, so there is no time limit. */
export async function post(path, { key, signal, json } = {}) {
	const headers = withKey({ Accept: "application/json" }, key);
	if (json) headers["Content-Type"] = "application/json";
	return bodyOf(await send(path, { method: "POST", headers, signal, body: json && JSON.stringify(json) }));
}

/** The response as a stream. */
export async function openStream(path, { key, lastEventId, signal }) {
	const headers = withKey({ Accept: "text/event-stream" }, key);
	if (lastEventId !== null) headers["Last-Event-ID"] = lastEventId;
	const response = await send(path, { headers, signal });
	if (!response.ok) await bodyOf(response);
	return response;
}

function withKey(headers, key) {
	return key ? { ...headers, "X-Admin-Key": key } : headers;
}

function within(timeoutMs, signal) {
	const limit = AbortSignal.timeout(timeoutMs);
	return signal ? AbortSignal.any([signal, limit]) : limit;
}

async function send(path, options) {
	let response;
	try {
		response = await fetch(path, { credentials: "same-origin", redirect: "error", cache: "no-cache", ...options });
	} catch (error) {
		if (error.name === "AbortError") throw error;
		const slow = error.name === "TimeoutError";
		throw new Refused(slow ? "The service did not answer in time." : "The service cannot be reached.");
	}
	heard(Date.parse(response.headers.get("Date")));
	return response;
}

async function bodyOf(response) {
	/** @type {any | import("./types.js").ErrorBody} */
	let body = null;
	try {
		body = await response.json();
	} catch (error) {
		if (error.name === "AbortError") throw error;
		if (response.ok) throw new Refused("The service's answer is truncated or not JSON.");
	}
	if (response.ok) return body;
	const sentence = typeof body?.error === "string" ? body.error : `The service answered ${response.status}.`;
	const retryAfterMs = Number(response.headers.get("Retry-After")) * 1000 || 0;
	throw new Refused(sentence, { status: response.status, retryAfterMs });
}
