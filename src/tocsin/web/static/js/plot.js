/** Values over time as a chart: dots for runs, a line for prices. A table beside it has the same numbers. */

import { el, svg } from "./dom.js";
import { clock, clockSeconds, day } from "./format.js";

const DAY_MS = 86_400_000;
const SHORT_MS = 600_000;
const TIMES = 5;

/** The range of the values, from `low` to `high`, never empty. Pure. */
export function rangeOf(values, fromZero) {
	const high = Math.max(...values, fromZero ? 0 : -Infinity);
	const low = fromZero ? 0 : Math.min(...values);
	if (high > low) return { low, high };
	return { low: fromZero ? 0 : low - Math.abs(low) / 100, high: high + (Math.abs(high) / 100 || 1) };
}

/** The median and the highest value. Pure. */
export function summaryOf(values) {
	const sorted = [...values].sort((a, b) => a - b);
	return { median: sorted[Math.floor((sorted.length - 1) / 2)], highest: sorted.at(-1) };
}

/** Parts of a line between gaps: a missing value, or more than `gapMs` without one. Pure. */
export function piecesOf(points, gapMs) {
	const pieces = [];
	let last = null;
	for (const point of points) {
		if (point.value === null) last = null;
		else {
			if (last === null || point.at - last.at > gapMs) pieces.push([]);
			pieces.at(-1).push(point);
			last = point;
		}
	}
	return pieces;
}

/**
 * `points` are `{at, value}`, oldest first; those of runs also have `outcome`, `run` and `words`.
 * @param {{points: object[], from: number, to: number, format: (value: number) => string, label: string, line?: boolean, fromZero?: boolean, gapMs?: number, dayOf?: (at: number) => string}} options
 */
export function plot({ points, from, to, format, label, line = false, fromZero = !line, gapMs = Infinity, dayOf = day }) {
	const known = points.filter((point) => point.value !== null);
	if (!known.length) return el("p", { class: "note" }, "No values in this period.");
	const { low, high } = rangeOf(known.map((point) => point.value), fromZero);
	const x = (at) => ((at - from) / Math.max(1, to - from)) * 100;
	const y = (value) => 96 - ((value - low) / (high - low)) * 92;
	const picture = svg("svg", { class: "plot", role: "img", "aria-label": label });
	const marks = [high, (low + high) / 2, low];
	for (const value of marks) picture.append(svg("line", { x1: 0, x2: "100%", y1: `${y(value)}%`, y2: `${y(value)}%` }));
	if (line) picture.append(lineOf(piecesOf(points, gapMs), x, y));
	else picture.append(...known.map((point) => dot(point, x, y)));
	const values = el("div", { class: "values", "aria-hidden": "true" }, ...marks.map((value) => el("span", {}, format(value))));
	return el("div", { class: "chart" }, values, el("div", {}, picture, timesOf(from, to, dayOf)));
}

function lineOf(pieces, x, y) {
	const inner = svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", width: "100%", height: "100%" });
	for (const piece of pieces) {
		const path = piece.map((point, index) => `${index ? "L" : "M"}${x(point.at).toFixed(3)} ${y(point.value).toFixed(2)}`).join("");
		inner.append(svg("path", { d: piece.length > 1 ? path : `${path}h.3` }));
	}
	return inner;
}

function dot({ at, value, outcome, run, words }, x, y) {
	const attributes = { cx: `${x(at).toFixed(2)}%`, cy: `${y(value).toFixed(1)}%`, r: 3, "data-outcome": outcome, "data-run": run };
	return svg("circle", attributes, svg("title", {}, words));
}

function timesOf(from, to, dayOf) {
	const shown = to - from > 2 * DAY_MS ? dayOf : to - from < SHORT_MS ? clockSeconds : clock;
	const times = Array.from({ length: TIMES }, (_, index) => from + ((to - from) * index) / (TIMES - 1));
	return el("div", { class: "times", "aria-hidden": "true" }, ...times.map((at) => el("span", {}, shown(at))));
}
