/** Loads the board page by page, and only the pages that have changed. */

import { getJson } from "./request.js";

const BOARD = "/api/competition/leaderboard?sort=pnl&dir=desc&limit=200";
const PAGES_MAX = 60;

/**
 * The whole board of a period: `{rows, asOf, pricesAsOf, pages}`. `previous` is the known board; its pages are requested
 * with their ETags. `arrived` is called with the board so far after each page.
 */
export async function loadBoard(period, previous, arrived) {
	const known = new Map((previous?.pages ?? []).map((page) => [page.cursor, page]));
	const pages = [];
	let cursor = "";
	while (pages.length < PAGES_MAX) {
		pages.push(await loadPage(period, cursor, known.get(cursor)));
		cursor = pages.at(-1).body.next ?? "";
		if (!cursor) break;
		arrived(joined(pages, false));
	}
	return joined(pages);
}

async function loadPage(period, cursor, known) {
	const path = `${BOARD}&period=${period}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`;
	const answer = await getJson(path, { etag: known?.etag });
	return answer.body === null ? known : { cursor, etag: answer.etag, body: answer.body };
}

/**
 * A row that moved between two pages during loading is in both: the later one counts.
 * @param {{body: import("./types.js").Board}[]} pages
 */
export function joined(pages, complete = true) {
	const rows = new Map();
	for (const page of pages) for (const row of page.body.rows) rows.set(row.stxAddress, row);
	const { asOf, pricesAsOf, sweptAt, service, firstSweep, final, period, since, round } = pages[0].body;
	return { rows: [...rows.values()], asOf, pricesAsOf, sweptAt, service, firstSweep, final, period, since, round, pages, complete };
}
