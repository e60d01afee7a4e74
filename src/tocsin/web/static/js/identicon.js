/** A small picture, always the same for an address. Decoration: the address is next to it. */

import { svg } from "./dom.js";

export function hashOf(text) {
	let hash = 2166136261;
	for (const character of text) hash = Math.imul(hash ^ character.codePointAt(0), 16777619);
	return Math.imul(hash ^ (hash >>> 15), 2246822507) >>> 0;
}

export function identicon(address) {
	const hash = hashOf(address);
	const cells = [];
	for (let index = 0; index < 15; index += 1) {
		if (!((hash >>> index) & 1)) continue;
		const [x, y] = [Math.floor(index / 5), index % 5];
		for (const column of new Set([x, 4 - x])) cells.push(`M${column + 1} ${y + 1}h1v1h-1z`);
	}
	const attributes = { class: "identicon", width: 36, height: 36, viewBox: "0 0 7 7", fill: `oklch(65% .13 ${(hash >>> 16) % 360})`, "aria-hidden": "true" };
	return svg("svg", attributes, svg("rect", { width: 7, height: 7, rx: 2, opacity: 0.16 }), svg("path", { d: cells.join("") }));
}
