/** Countdowns to the second, for operators. */

import { everySecond, now } from "./clock.js";
import { setAttribute, setText } from "./dom.js";
import { moment } from "./format.js";

/** A countdown: 4:07, or 2:04:07. */
export function remaining(ms) {
	const seconds = Math.max(0, Math.ceil(ms / 1000));
	const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
	return (parts[0] ? parts : parts.slice(1)).map((part, index) => (index ? String(part).padStart(2, "0") : String(part))).join(":");
}

/** Counts down to `until`; shows `otherwise` when there is nothing to wait for. */
export function setCountdown(node, until, otherwise) {
	setAttribute(node, "data-until", until);
	setAttribute(node, "title", until && moment(until));
	setText(node, until ? remaining(until - now()) : otherwise);
}

everySecond(() => {
	for (const node of document.querySelectorAll("[data-until]")) setText(node, remaining(Number(node.dataset.until) - now()));
});
