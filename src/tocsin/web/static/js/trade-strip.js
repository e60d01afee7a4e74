/** The latest trades of everybody, newest first, in one line. */

import { nameOf } from "./agent-name.js";
import { ageOf } from "./clock.js";
import { byId, el, keyed } from "./dom.js";
import { shortAddress } from "./format.js";
import { shortAmount } from "./money.js";
import { getJson } from "./request.js";
import { tokenLabel } from "./tokens.js";

const SHOWN = 12;

/** @type {import("./types.js").Trade[]} */
let trades = [];

/** Without an answer the strip stays as it is. */
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
	byId("strip").hidden = trades.length === 0;
	const owner = new Map(rows.flatMap((row) => row.wallets.map((wallet) => [wallet, row])));
	keyed(byId("strip-trades"), trades, ({ txid }) => txid, () => el("li"), (node, trade) => {
		const row = owner.get(trade.sender);
		const name = row ? nameOf(row) : shortAddress(trade.sender);
		const side = (units, token) => {
			const decimals = prices[token]?.decimals ?? null;
			return [decimals === null ? "" : `${shortAmount(BigInt(units), decimals)} `, tokenLabel(token)];
		};
		node.replaceChildren(
			el("a", { href: `/agents/${trade.sender}` }, name),
			" ",
			...side(trade.amount_in, trade.token_in),
			" → ",
			...side(trade.amount_out, trade.token_out),
			" ",
			ageOf(trade.burn_block_time * 1000),
		);
	});
}
