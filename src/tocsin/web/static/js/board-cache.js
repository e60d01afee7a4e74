/** The last board this browser saw, so that a reload paints at once. Public data only. */

import { joined } from "./board-feed.js";

const KEY = "tocsin:board:3";
const AGE_MAX_MS = 24 * 3_600_000;

export function recallBoard(period) {
	try {
		const kept = JSON.parse(localStorage.getItem(KEY));
		if (kept && kept.period === period && Date.now() - kept.savedAt < AGE_MAX_MS) return joined(kept.pages);
	} catch {
		// Nothing kept, or unreadable: the service has it.
	}
	return null;
}

/** Runs when the browser is idle. */
export function keepBoard({ pages, period }) {
	const whenIdle = globalThis.requestIdleCallback ?? ((work) => setTimeout(work, 200));
	whenIdle(() => {
		try {
			localStorage.setItem(KEY, JSON.stringify({ savedAt: Date.now(), period, pages }));
		} catch {
			// Full or forbidden: the page works without it.
		}
	});
}
