/** Tables and lists that grow page by page. */

import { el } from "./dom.js";

/** A table with a heading: returns the element for the page, and its body. `numbers` are right-aligned columns. */
export function tableOf(name, columns, numbers = []) {
	const head = columns.map((column) => el("th", { scope: "col", class: numbers.includes(column) ? "num" : null }, column));
	const body = el("tbody");
	const table = el("table", {}, el("thead", {}, el("tr", {}, ...head)), body);
	return { part: el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, table), body };
}

export const cellsOf = (cells, numbers = []) =>
	cells.map((cell, index) => el("td", { class: numbers.includes(index) ? "num" : null }, cell ?? ""));

/** Pairs of a name and a value. */
export const factsOf = (facts) =>
	el("dl", { class: "facts" }, ...facts.filter(([, value]) => value !== null).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

/** A select for a filter. */
export function selectOf(label, options, chosen, changed) {
	const select = el("select", { "aria-label": label, change: () => changed(select.value) });
	select.append(...options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
	return el("label", { class: "filter" }, el("span", {}, label), select);
}
