/** The board as a table. Rows keep their elements and are updated in place. */

import { namesOf } from "./agent-name.js";
import { ageOf, setAge } from "./clock.js";
import { byId, el, keyed, setAttribute, setText } from "./dom.js";
import { count, NONE } from "./format.js";
import { identicon } from "./identicon.js";
import { signedPercent, signedUsd, usd } from "./money.js";
import { makeCurve, updateCurve } from "./sparkline.js";

const body = byId("rows");

/** Sums from here on are shortened, so that digits stay in their column. */
const SHORT_FROM = 1_000_000;
const UNCOUNTED_SHARE = 0.05; // of the trades; a smaller share does not matter

/** @param {{row: import("./types.js").BoardRow, rank: number, medal: boolean, moved: number | null}[]} entries */
export function drawRows(entries, view) {
	keyed(body, entries, ({ row }) => row.stxAddress, makeRow, updateRow);
	for (const button of document.querySelectorAll("#board thead button")) {
		const sorted = button.dataset.sort === view.sort;
		const direction = view.dir === "asc" ? "ascending" : "descending";
		setAttribute(button.closest("th"), "aria-sort", sorted ? direction : "none");
	}
}

/** Explicit roles: as cards on a phone, the rows would lose those of a table. */
const cell = (name, ...children) => el("td", { role: "cell", class: name }, ...children);

function makeRow({ row }) {
	const link = el("a", { href: `/agents/${encodeURIComponent(row.stxAddress)}`, "data-agent": row.stxAddress });
	return el(
		"tr",
		{ role: "row" },
		cell("rank", el("span"), el("small")),
		cell("agent", identicon(row.stxAddress), el("div", {}, link, el("small"))),
		cell("line", makeCurve()),
		cell("trades num"),
		cell("volume num", el("span"), el("abbr", { class: "unpriced", hidden: true })),
		cell("pnl num", el("span"), el("span", { class: "at-trade" })),
		cell("percent num"),
		cell("latest num"),
	);
}

function updateRow(node, { row, rank, medal, moved }, isNew) {
	const [rankCell, agent, line, trades, volume, pnl, percent, latest] = node.children;
	setText(rankCell.firstChild, count(rank));
	setAttribute(rankCell, "data-medal", medal ? String(rank) : null);
	updateMove(rankCell.lastChild, moved);
	updateAgent(agent, row);
	updateCurve(line.firstChild, row.sparkline);
	const changed = [
		setText(trades, count(row.tradeCount)) && trades,
		setText(volume.firstChild, usd(row.volumeUsd, SHORT_FROM)) && volume,
		setText(pnl.firstChild, signedUsd(row.pnlUsd, SHORT_FROM)) && pnl,
		setText(percent, signedPercent(row.pnlPercent)) && percent,
	];
	for (const money of [pnl, percent]) setAttribute(money, "data-sign", signOf(row.pnlUsd));
	setText(pnl.lastChild, row.pnlAtTradeUsd === null ? "" : `${signedUsd(row.pnlAtTradeUsd, SHORT_FROM / 100)} at trade`);
	setAttribute(pnl, "title", atTradeOf(row));
	updateUncounted(volume.lastChild, row);
	updateLatest(latest, row.latestTradeAt);
	if (!isNew) changed.filter(Boolean).forEach(flash);
}

function updateAgent(cellNode, row) {
	const [link, small] = cellNode.lastChild.children;
	const identity = row.erc8004AgentId === null ? null : `#${row.erc8004AgentId}`;
	const [name, ...others] = [...namesOf(row), identity].filter(Boolean);
	setText(link, name);
	setText(small, others.join(" · "));
	setAttribute(small, "title", row.stxAddress);
}

function updateMove(node, moved) {
	const places = Math.abs(moved ?? 0);
	const [arrow, word] = moved > 0 ? ["▲", "up"] : ["▼", "down"];
	setAttribute(node, "data-sign", signOf(moved));
	if (node.dataset.moved === String(moved)) return;
	node.dataset.moved = moved;
	const shown = places ? [el("span", { "aria-hidden": "true" }, `${arrow}${count(places)}`), el("span", { class: "sr" }, `, ${word} ${count(places)} in 24 hours`)] : [];
	node.replaceChildren(...shown);
}

/** Only where it matters. @param {import("./types.js").BoardRow} row */
function updateUncounted(node, row) {
	const [unpriced, thin, excess] = [row.unpricedTokens.length, row.thinTokens.length, row.excessTradeCount ?? 0];
	node.hidden = !excess && (unpriced + thin === 0 || row.uncountedTradeCount < row.tradeCount * UNCOUNTED_SHARE);
	if (node.hidden) return;
	setText(node, [unpriced && `${unpriced} unpriced`, thin && `${thin} thin`, excess && `${count(excess)} excessive`].filter(Boolean).join(", "));
	node.title = `Tokens without a price, or too thinly traded, or trades worth more than a pool can pay: ${count(row.uncountedTradeCount)} of ${count(row.tradeCount)} trades are not in volume and P&L`;
}

/** @param {import("./types.js").BoardRow} row */
export const atTradeOf = (row) => `At trade: each swap at the prices of its own time, known for ${count(row.valuedTradeCount)} of ${count(row.tradeCount)}.`;

function updateLatest(cellNode, at) {
	if (at === null) setText(cellNode, NONE);
	else if (cellNode.firstElementChild) setAge(cellNode.firstElementChild, at);
	else cellNode.replaceChildren(ageOf(at));
}

export function signOf(value) {
	if (value === null || value === undefined || Math.abs(value) < 0.005) return null;
	return value > 0 ? "gain" : "loss";
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** Highlight a changed value. */
function flash(node) {
	if (calm.matches) return;
	const color = getComputedStyle(document.documentElement).getPropertyValue("--flash");
	node.animate([{ backgroundColor: color }, { backgroundColor: "transparent" }], { duration: 1600, easing: "ease-out" });
}
