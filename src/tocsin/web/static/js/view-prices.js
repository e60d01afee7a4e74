/** The price of a token over time, as a line and as a table. */

import { el } from "./dom.js";
import { clock, day, price, shortAddress } from "./format.js";
import { plot } from "./plot.js";
import { loadPrices } from "./prices.js";
import { getJson } from "./request.js";
import { cellsOf, selectOf, tableOf } from "./table.js";
import { tokenName } from "./tokens.js";
import { linkTo } from "./views.js";

const PATH = "/api/admin/prices/history";
const HOUR_MS = 3_600_000;
const PERIODS = [["24h", "24 hours", 24], ["7d", "7 days", 168], ["30d", "30 days", 720]];

export async function show(body, { query, session, named, go }) {
	const { key, prices } = session();
	const known = (prices ?? (await loadPrices(null))).prices;
	const priced = Object.keys(known).filter((id) => known[id].source !== "peg").sort((a, b) => tokenName(a).localeCompare(tokenName(b)));
	const token = query.get("token") || (priced.includes("stx") ? "stx" : priced[0]);
	const period = PERIODS.find(([value]) => value === query.get("period")) ?? PERIODS[0];
	const choose = (changes) => go(linkTo("prices", { token, period: period[0], ...changes }));
	const label = (id) => `${tokenName(id)}${id.includes(".") ? ` (${shortAddress(id.split(".")[0])})` : ""}`;
	const filters = el(
		"div",
		{ class: "filters" },
		selectOf("Token", [...new Set([...priced, token])].filter(Boolean).map((id) => [id, label(id)]), token, (value) => choose({ token: value })),
		selectOf("Period", PERIODS, period[0], (value) => choose({ period: value })),
	);
	const chart = el("div", {});
	body.replaceChildren(filters, chart);
	if (!token) return chart.replaceChildren(el("p", { class: "note" }, "No prices are known yet."));
	/** @type {import("./types.js").PriceHistory} */
	const history = (await getJson(`${PATH}?${new URLSearchParams({ token, period: period[0] })}`, { key })).body;
	named(`Price of ${tokenName(token)}`);
	chart.replaceChildren(...drawn(history, known[token], period));
	return undefined;
}

/** @param {import("./types.js").PriceHistory} history */
function drawn(history, present, [, words, hours]) {
	if (present?.source === "peg") return [el("p", { class: "note" }, "It is pegged to the dollar and has no history.")];
	const points = history.points.map(({ at, priceUsd }) => ({ at, value: priceUsd }));
	const values = points.map((point) => point.value).filter((value) => value !== null);
	if (!values.length) return [el("p", { class: "note" }, `No price was seen in the last ${words}.`)];
	const [first, last, low, high] = [values[0], values.at(-1), Math.min(...values), Math.max(...values)];
	const change = `${last >= first ? "+" : "\u2212"}${Math.abs((last / first - 1) * 100).toFixed(1)} %`;
	const summary = `${price(last)}, ${change} in ${words}; lowest ${price(low)}, highest ${price(high)}.`;
	const label = `Price of ${tokenName(history.token)}: ${summary}`;
	const to = history.asOf;
	const { part, body } = tableOf("Prices", ["Seen", "Price"], ["Price"]);
	const rows = [...points].reverse().map(({ at, value }) => el("tr", {}, ...cellsOf([`${day(at)}, ${clock(at)}`, value === null ? "none" : price(value)], [1])));
	body.append(...rows);
	return [
		el("p", { class: "summary" }, summary),
		plot({ points, from: to - hours * HOUR_MS, to, format: price, label, line: true, gapMs: Math.max(HOUR_MS, (hours * HOUR_MS) / 100) }),
		el("p", { class: "note" }, "In a gap, no price was seen or accepted."),
		el("details", {}, el("summary", {}, "As a table"), part),
	];
}
