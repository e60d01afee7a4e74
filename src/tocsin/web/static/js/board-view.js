/** The view in the address bar, so that links can be shared and Back works. Pure. */

import { COLUMNS } from "./board-order.js";

/** The service chooses the first period: that of the round while one runs. */
const first = globalThis.document?.querySelector("[name=period][checked]")?.value ?? "all";
export const DEFAULT_VIEW = { sort: "pnl", dir: "desc", q: "", page: 1, agent: null, period: first };
export const PERIODS = ["round", "24h", "7d", "30d", "all"];
const QUERY_MAX = 100;

export function parseView(search) {
	const given = new URLSearchParams(search);
	const sort = Object.hasOwn(COLUMNS, given.get("sort") ?? "") ? given.get("sort") : DEFAULT_VIEW.sort;
	const page = /^[1-9]\d{0,5}$/.test(given.get("page") ?? "") ? Number(given.get("page")) : 1;
	return {
		sort,
		dir: ["asc", "desc"].includes(given.get("dir")) ? given.get("dir") : COLUMNS[sort].dir,
		q: (given.get("q") ?? "").slice(0, QUERY_MAX),
		page,
		period: PERIODS.includes(given.get("period")) ? given.get("period") : DEFAULT_VIEW.period,
		agent: /^S[A-Z0-9]{10,60}$/.test(given.get("agent") ?? "") ? given.get("agent") : null,
	};
}

/** Only what differs from the default view. */
export function formatView(view) {
	const query = new URLSearchParams();
	if (view.period !== DEFAULT_VIEW.period) query.set("period", view.period);
	if (view.sort !== DEFAULT_VIEW.sort) query.set("sort", view.sort);
	if (view.dir !== COLUMNS[view.sort].dir) query.set("dir", view.dir);
	if (view.q) query.set("q", view.q);
	if (view.page > 1) query.set("page", view.page);
	if (view.agent) query.set("agent", view.agent);
	return query.size ? `?${query}` : "";
}
