/** The latest trades of all agents, newest first, in one line. */

import { nameOf } from "./agent-name.js";
import { ageOf } from "./clock.js";
import { byId, el, keyed, setText } from "./dom.js";
import { shortAddress } from "./format.js";
import { shortAmount } from "./money.js";
import { getJson } from "./request.js";
import { tokenLabel } from "./tokens.js";

const SHOWN = 12;

/** @type {import("./types.js").Trade[]} */
let trades = [];

/** Without an answer it stays as it is. */
export async function loadTrades() {
	const answer = await getJson(`/api/competition/trades?limit=${SHOWN}`).catch(() => null);
	if (answer?.body) trades = answer.body.trades;
}

/** @param {import("./types.js").Trade | undefined} trade */
export function addTrade(trade) {
	if (trade && !trades.some(({ txid }) => txid === trade.txid)) trades = [trade, ...trades].slice(0, SHOWN);
}

/** @param {import("./types.js").BoardRow[]} rows @param {Record<string, import("./types.js").Price>} prices */
export function drawTrades(rows, prices) {
	byId("strip").hidden = !trades.length;
	const owner = new Map(rows.flatMap((row) => row.wallets.map((wallet) => [wallet, row])));
	const side = (units, token, decimals = prices[token]?.decimals ?? null) =>
		[decimals === null ? "" : `${shortAmount(BigInt(units), decimals)} `, tokenLabel(token)];
	const make = ({ sender, block_time, burn_block_time }) =>
		el("li", {}, el("a", { href: `/agents/${sender}`, tabindex: -1 }), el("span"), ageOf((block_time ?? burn_block_time) * 1000));
	keyed(byId("strip-trades"), trades, ({ txid }) => txid, make, ({ children: [agent, swap] }, trade) => {
		const row = owner.get(trade.sender);
		setText(agent, row ? nameOf(row) : shortAddress(trade.sender));
		swap.replaceChildren(" ", ...side(trade.amount_in, trade.token_in), " → ", ...side(trade.amount_out, trade.token_out), " ");
	});
}
