/** The names of an agent. Pure. */

import { shortAddress } from "./format.js";

/** The visible part of a text, or "". Two hidden characters stay, because they join emoji. */
export function visible(text) {
	const seen = (text ?? "")
		.replace(/\s+/g, " ")
		.replace(/(?![\u200d\ufe0f])[\p{Cc}\p{Cf}\p{DI}]/gu, "")
		.trim();
	return /[^\p{Z}\u200d\ufe0f\u2800]/u.test(seen) ? seen : "";
}

/** All its names, the preferred one first. @param {import("./types.js").BoardRow} row */
export const namesOf = (row) =>
	[visible(row.displayName), visible(row.bnsName), shortAddress(row.stxAddress)].filter(Boolean);

export const nameOf = (row) => namesOf(row)[0];
