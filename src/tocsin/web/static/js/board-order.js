/** Which rows to show, in which order, with which rank. Pure. */

import { nameOf, namesOf } from "./agent-name.js";

export const PAGE_ROWS = 25;

/** The sort columns; `dir` is the direction that people expect first. */
export const COLUMNS = {
	agent: { value: (row) => nameOf(row).toLowerCase(), dir: "asc" },
	trades: { value: (row) => row.tradeCount, dir: "desc" },
	volume: { value: (row) => row.volumeUsd, dir: "desc" },
	pnl: { value: (row) => row.pnlUsd, dir: "desc" },
	percent: { value: (row) => row.pnlPercent, dir: "desc" },
	latest: { value: (row) => row.latestTradeAt, dir: "desc" },
};
const RANKED_BY_DEFAULT = "pnl";

/**
 * The page of rows for a view: `{rows: [{row, rank, medal, moved}], found, pages, page}`.
 * The rank is the place in the sort column, best first; searching or reversing the order does not change it.
 * @param {import("./types.js").BoardRow[]} rows
 */
export function arrange(rows, view) {
	const rankedBy = view.sort === "agent" ? RANKED_BY_DEFAULT : view.sort;
	const inRound = view.period === "round"; // its rules decide the order
	const ranked = ordered(rows, rankedBy, "desc", inRound).map((row, index) => entryOf(row, index, rankedBy, view.period));
	const sorted =
		rankedBy === view.sort && view.dir === "desc" ? ranked : ordered(ranked, view.sort, view.dir, inRound, (entry) => entry.row);
	const wanted = view.q.trim().toLowerCase();
	const found = wanted ? sorted.filter(({ row }) => searchText(row).includes(wanted)) : sorted;
	const pages = Math.max(1, Math.ceil(found.length / PAGE_ROWS));
	const page = Math.min(view.page, pages);
	return { rows: found.slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS), found: found.length, pages, page };
}

/** Medals are for P&L; rank changes are those of the whole board by P&L. */
function entryOf(row, index, rankedBy, period) {
	const byPnl = rankedBy === RANKED_BY_DEFAULT;
	return { row, rank: index + 1, medal: byPnl && index < 3 && row.pnlUsd !== null, moved: byPnl && period === "all" ? row.rankChange : null };
}

/** Rows without a value come last in both directions; ties go by latest trade, then by address, or by place. */
function ordered(items, sort, dir, byPlace, rowOf = (item) => item) {
	const { value } = COLUMNS[sort];
	const sign = dir === "asc" ? 1 : -1;
	const keys = new Map(items.map((item) => [item, value(rowOf(item))]));
	return [...items].sort((a, b) => {
		const [x, y] = [keys.get(a), keys.get(b)];
		const [noX, noY] = [x === null || x === undefined, y === null || y === undefined];
		if (noX !== noY) return noX ? 1 : -1;
		if (!noX && x !== y) return x < y ? -sign : sign;
		return byPlace ? rowOf(a).rank - rowOf(b).rank : tie(rowOf(a), rowOf(b));
	});
}

function tie(a, b) {
	const byTime = (b.latestTradeAt ?? 0) - (a.latestTradeAt ?? 0);
	return byTime || (a.stxAddress < b.stxAddress ? -1 : 1);
}

const searchTexts = new WeakMap();

function searchText(row) {
	let text = searchTexts.get(row);
	if (text === undefined) {
		const identity = row.erc8004AgentId === null ? "" : `#${row.erc8004AgentId}`;
		text = [...namesOf(row), ...row.wallets, row.btcAddress, identity].join("\n").toLowerCase();
		searchTexts.set(row, text);
	}
	return text;
}
