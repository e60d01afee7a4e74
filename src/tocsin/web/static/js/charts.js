/** Small pictures drawn from numbers; each has a description in words. */

import { el, svg } from "./dom.js";

/** Bars side by side, over the whole width: `[{value, label}]`. */
export function columns(items, description) {
	const most = Math.max(1, ...items.map((item) => item.value));
	const step = 100 / items.length;
	const picture = svg("svg", { class: "columns", role: "img", "aria-label": description });
	items.forEach((item, index) => {
		const height = item.value ? Math.max(6, (item.value / most) * 100) : 2;
		const bar = svg("rect", {
			x: `${index * step + step * 0.12}%`,
			y: `${100 - height}%`,
			width: `${step * 0.76}%`,
			height: `${height}%`,
			rx: 2,
			class: item.value ? "" : "nothing",
		});
		bar.append(svg("title", {}, item.label));
		picture.append(bar);
	});
	return picture;
}

/** One bar from the middle: to the right for more, to the left for less. `part` is between -1 and 1. */
export function balance(part) {
	const bar = el("span", { class: "balance", "data-sign": part < 0 ? "loss" : "gain", "aria-hidden": "true" }, el("i"));
	bar.firstChild.style.width = `${Math.abs(part) * 50}%`;
	bar.firstChild.style.left = part < 0 ? `${50 + part * 50}%` : "50%";
	return bar;
}
