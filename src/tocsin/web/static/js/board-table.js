/** The board as a table. Rows stay where they are in the document and change in place. */

import { namesOf } from "./agent-name.js";
import { ageOf, setAge } from "./clock.js";
import { byId, el, keyed, setAttribute, setText } from "./dom.js";
import { count, NONE } from "./format.js";
import { identicon } from "./identicon.js";
import { signedPercent, signedUsd, usd } from "./money.js";

const body = byId("rows");

/** @param {{row: import("./types.js").BoardRow, rank: number, medal: boolean}[]} entries */
export function drawRows(entries, view) {
	keyed(body, entries, ({ row }) => row.stxAddress, makeRow, updateRow);
	for (const button of document.querySelectorAll("#board thead button")) {
		const sorted = button.dataset.sort === view.sort;
		const direction = view.dir === "asc" ? "ascending" : "descending";
		setAttribute(button.closest("th"), "aria-sort", sorted ? direction : "none");
	}
}

/** Explicit roles: on a phone the rows are laid out as cards, and a browser would forget that this is a table. */
const cell = (name, ...children) => el("td", { role: "cell", class: name }, ...children);

function makeRow({ row }) {
	const link = el("a", { href: `?agent=${encodeURIComponent(row.stxAddress)}`, "data-agent": row.stxAddress });
	return el(
		"tr",
		{ role: "row" },
		cell("rank", el("span")),
		cell("agent", identicon(row.stxAddress), el("div", {}, link, el("small"))),
		cell("trades num"),
		cell("volume num", el("span"), el("abbr", { class: "unpriced", hidden: true })),
		cell("pnl num", el("span"), el("span", { class: "at-trade" })),
		cell("percent num"),
		cell("latest num"),
	);
}

function updateRow(node, { row, rank, medal }, isNew) {
	const [rankCell, agent, trades, volume, pnl, percent, latest] = node.children;
	setText(rankCell.firstChild, count(rank));
	setAttribute(rankCell, "data-medal", medal ? String(rank) : null);
	updateAgent(agent, row);
	const changed = [
		setText(trades, count(row.tradeCount)) && trades,
		setText(volume.firstChild, usd(row.volumeUsd)) && volume,
		setText(pnl.firstChild, signedUsd(row.pnlUsd)) && pnl,
		setText(percent, signedPercent(row.pnlPercent)) && percent,
	];
	for (const money of [pnl, percent]) setAttribute(money, "data-sign", signOf(row.pnlUsd));
	setText(pnl.lastChild, row.pnlAtTradeUsd === null ? "" : `${signedUsd(row.pnlAtTradeUsd)} at trade`);
	setAttribute(pnl, "title", atTradeOf(row));
	updateUncounted(volume.lastChild, row.unpricedTokens.length, row.thinTokens.length);
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

function updateUncounted(node, unpriced, thin) {
	node.hidden = unpriced + thin === 0;
	if (node.hidden) return;
	setText(node, [unpriced && `${unpriced} unpriced`, thin && `${thin} thin`].filter(Boolean).join(", "));
	node.title = "Tokens of this agent without a price, or with one that hardly anybody could trade at: swaps with them are not in volume and P&L";
}

/** @param {import("./types.js").BoardRow} row */
export const atTradeOf = (row) => `At trade: each swap at the prices of its own time; they are known of ${count(row.valuedTradeCount)} of ${count(row.tradeCount)}.`;

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

/** Draw the eye to a value that changed. */
function flash(node) {
	if (calm.matches) return;
	const color = getComputedStyle(document.documentElement).getPropertyValue("--flash");
	node.animate([{ backgroundColor: color }, { backgroundColor: "transparent" }], { duration: 1600, easing: "ease-out" });
}
