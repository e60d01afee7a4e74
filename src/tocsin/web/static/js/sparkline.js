/** A small curve, with its description in words. Gaps stay gaps. */

import { setAttribute, svg } from "./dom.js";
import { signedUsd } from "./money.js";

const WIDTH = 100;
const HEIGHT = 28;

/** How a curve is drawn: `{path, label, sign}`; null with fewer than two values. Pure. @param {(number | null)[]} values */
export function curveOf(values) {
	const known = values.filter((value) => value !== null);
	if (known.length < 2) return null;
	const [low, high] = [Math.min(...known), Math.max(...known)];
	const x = (index) => ((index / (values.length - 1)) * WIDTH).toFixed(1);
	const y = (value) => (high === low ? HEIGHT / 2 : 2 + ((high - value) / (high - low)) * (HEIGHT - 4)).toFixed(1);
	let path = "";
	values.forEach((value, index) => {
		if (value === null) return;
		const alone = (values[index - 1] ?? null) === null;
		path += alone ? `M${x(index)} ${y(value)}h.01` : `L${x(index)} ${y(value)}`;
	});
	const [first, last] = [known[0], known.at(-1)];
	const label = `P&L in 7 days: ${signedUsd(first)} to ${signedUsd(last)}, between ${signedUsd(low)} and ${signedUsd(high)}`;
	return { path, label, sign: last < first ? "loss" : last > first ? "gain" : null };
}

export const makeCurve = () => svg("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" }, svg("path"));

export function updateCurve(picture, values) {
	const curve = curveOf(values);
	const names = { role: curve && "img", "aria-label": curve?.label ?? null, "data-sign": curve?.sign ?? null, "aria-hidden": curve ? null : true };
	for (const [name, value] of Object.entries(names)) setAttribute(picture, name, value);
	setAttribute(picture.firstChild, "d", curve?.path ?? "");
}
