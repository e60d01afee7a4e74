/** The service's clock, and the one timer that updates ages and countdowns. */

import { ago, isoTime, left, moment } from "./format.js";
import { el, setAttribute, setText } from "./dom.js";

const SKEW_IGNORED_MS = 2000; // a Date header has whole seconds
let skewMs = 0;

export const now = () => Date.now() + skewMs;

/** Take the server's time, so that a visitor's wrong clock does not cause wrong ages. */
export function heard(serverMs) {
	const difference = serverMs - Date.now();
	if (Number.isFinite(difference)) skewMs = Math.abs(difference) > SKEW_IGNORED_MS ? difference : 0;
}

/** An element that shows how long ago something was, and is kept up to date. */
export function ageOf(at, attributes = {}) {
	const node = el("time", attributes);
	setAge(node, at);
	return node;
}

export function setAge(node, at) {
	if (node.dataset.at === String(at)) return;
	node.dataset.at = at;
	setAttribute(node, "datetime", isoTime(at));
	node.title = moment(at);
	setText(node, ago(now() - at));
}

/** An element that shows how long it is until a time, in words. */
export const leftUntil = (at) => el("time", { datetime: isoTime(at), "data-left": at, title: moment(at) }, left(at - now()));

const listeners = new Set();

/** Call back every second while the page is visible. */
export function everySecond(callback) {
	listeners.add(callback);
}

function tick() {
	if (document.hidden) return;
	for (const node of document.querySelectorAll("[data-at]")) setText(node, ago(now() - Number(node.dataset.at)));
	for (const node of document.querySelectorAll("[data-left]")) setText(node, left(Number(node.dataset.left) - now()));
	for (const callback of listeners) callback();
}

setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);
