/** What an agent is called. Pure. */

import { shortAddress } from "./format.js";

/** The part of a text that can be seen: "" when nothing can. Two hidden characters stay: they join emoji. */
export function visible(text) {
	const seen = (text ?? "")
		.replace(/\s+/g, " ")
		.replace(/(?![\u200d\ufe0f])[\p{Cc}\p{Cf}\p{DI}]/gu, "")
		.trim();
	return /[^\p{Z}\u200d\ufe0f\u2800]/u.test(seen) ? seen : "";
}

/** All its names, the one to call it by first. @param {import("./types.js").BoardRow} row */
export const namesOf = (row) =>
	[visible(row.displayName), visible(row.bnsName), shortAddress(row.stxAddress)].filter(Boolean);

export const nameOf = (row) => namesOf(row)[0];
