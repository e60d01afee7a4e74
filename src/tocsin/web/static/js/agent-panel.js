/** One agent: the trades of all its wallets, token by token, with links to the explorer. */

import { nameOf, visible } from "./agent-name.js";
import { activity, tokenFlows } from "./agent-trades.js";
import { signOf } from "./board-table.js";
import { balance, columns } from "./charts.js";
import { ageOf, now } from "./clock.js";
import { byId, el, setText } from "./dom.js";
import { count, price, shortAddress, utcDay } from "./format.js";
import { identicon } from "./identicon.js";
import { amount, shortAmount, signedPercent, signedUsd, usd } from "./money.js";
import { getJson } from "./request.js";
import { tokenLabel } from "./tokens.js";

const EXPLORER = "https://explorer.hiro.so";
const PAGE_TRADES = 200;
const LOADED_MAX = 1000; // loaded without asking; more on request
const SHOWN_STEP = 25;

const beside = matchMedia("(min-width: 93.75em)"); // where the board and the panel have room side by side
const dialog = byId("panel");
const content = byId("panel-content");

let state = null; // {agent, wallets, row, prices, trades, lists, shown, error, loading}

/**
 * Open the panel for an agent's wallets, or update it when it is open.
 * @param {string[]} wallets
 * @param {import("./types.js").BoardRow | undefined} row
 * @param {Record<string, import("./types.js").Price>} prices
 * @param {string} period of the figures in the row
 */
export function showAgent(wallets, row, prices, period = "all") {
	const agent = wallets.join();
	if (state?.agent !== agent) {
		state = { agent, wallets, row, prices, period, trades: [], lists: unread(wallets), shown: SHOWN_STEP, error: null, loading: true };
		load(state, LOADED_MAX);
	} else {
		if (prices === state.prices && JSON.stringify(row) === JSON.stringify(state.row)) return;
		const isNews = row && period === state.period && row.tradeCount !== state.row?.tradeCount;
		Object.assign(state, { row, prices, period });
		if (isNews && !state.loading) load({ ...state, trades: [], lists: unread(wallets) }, LOADED_MAX);
	}
	draw();
	if (!dialog.open) {
		if (beside.matches) dialog.show();
		else dialog.showModal();
		dialog.scrollTop = 0;
	}
}

export function hideAgent() {
	state = null;
	if (dialog.open) dialog.close();
}

document.addEventListener("keydown", (event) => {
	if (event.key === "Escape" && dialog.open && !dialog.matches(":modal")) dialog.close();
});

export const onClosed = (callback) => dialog.addEventListener("close", callback);

/** A list of trades per wallet: where its next page begins (null: nowhere), and how far back it was read. */
const unread = (wallets) => wallets.map((wallet) => ({ wallet, cursor: "", readTo: Infinity }));

/** The list to continue with: the one that was read least far back. */
const nextOf = (lists) => lists.filter(({ cursor }) => cursor !== null).sort((a, b) => b.readTo - a.readTo)[0];

/** Load pages into a copy, and show it if that agent is still open. */
async function load(wanted, upTo) {
	const trades = [...wanted.trades];
	const lists = wanted.lists.map((list) => ({ ...list }));
	const isLookedAt = () => state?.agent === wanted.agent;
	if (isLookedAt()) state.loading = true;
	let error = null;
	try {
		for (let list = nextOf(lists); list && trades.length < upTo && isLookedAt(); list = nextOf(lists)) {
			const asked = new URLSearchParams({ address: list.wallet, limit: PAGE_TRADES });
			if (list.cursor) asked.set("cursor", list.cursor);
			/** @type {{body: import("./types.js").TradePage}} */
			const { body } = await getJson(`/api/competition/trades?${asked}`);
			trades.push(...body.trades);
			list.cursor = body.next_cursor;
			list.readTo = body.trades.at(-1)?.burn_block_time ?? 0;
		}
	} catch (refusal) {
		error = refusal;
	}
	if (!isLookedAt()) return;
	trades.sort((a, b) => b.burn_block_time - a.burn_block_time);
	Object.assign(state, { error, loading: false }, error && !trades.length ? {} : { trades, lists });
	draw();
}

function draw() {
	const { row, wallets } = state;
	setText(byId("panel-title"), nameOf(row ?? { stxAddress: wallets[0] }));
	byId("panel-picture").replaceChildren(identicon(wallets[0]));
	const place = focusable().indexOf(document.activeElement);
	content.replaceChildren(identity(row, wallets), ...figures(row, state.period), ...tradesPart());
	if (place >= 0) focusable()[place]?.focus({ preventScroll: true });
}

const focusable = () => [...content.querySelectorAll("a, button")];

/** @param {import("./types.js").BoardRow | undefined} row */
function identity(row, wallets) {
	const line = (label, ...values) => el("div", {}, el("dt", {}, label), ...values.map((value) => el("dd", {}, value)));
	const lines = [line("Stacks", ...wallets.map(account))];
	const bns = visible(row?.bnsName);
	if (bns) lines.unshift(line("Name", el("bdi", {}, bns)));
	if (row?.btcAddress) lines.push(line("Bitcoin", el("code", {}, row.btcAddress)));
	if (row && row.erc8004AgentId !== null) lines.push(line("Identity", `ERC-8004 agent #${row.erc8004AgentId}`));
	if (row) lines.push(line("Page", el("a", { href: `/agents/${wallets[0]}` }, "Rank, curve, rounds and refusals")));
	return el("dl", { class: "identity" }, ...lines);
}

function account(address) {
	const href = `${EXPLORER}/address/${encodeURIComponent(address)}?chain=mainnet`;
	return el("a", { href, rel: "noopener noreferrer", target: "_blank" }, el("code", {}, address));
}

const PERIODS = { round: "of the round", "24h": "of the last 24 hours", "7d": "of the last 7 days", "30d": "of the last 30 days" };

/** @param {import("./types.js").BoardRow | undefined} row */
function figures(row, period) {
	const of = PERIODS[period];
	if (!row && of) return [el("p", { class: "note" }, `This address is not on the board ${of}.`)];
	if (!row) return [el("p", { class: "note" }, "This address is not on the board: no registered agent has verified trades with it.")];
	const figure = (label, value, sign = null) =>
		el("div", {}, el("dt", {}, label), el("dd", { "data-sign": sign }, value));
	const all = el(
		"dl",
		{ class: "figures" },
		figure("Trades", count(row.tradeCount)),
		figure("Volume", usd(row.volumeUsd)),
		figure("Capital used", usd(row.capitalUsd)),
		figure(of ? "P&L" : "Unrealized P&L", signedUsd(row.pnlUsd), signOf(row.pnlUsd)),
		figure(period === "round" ? "Return on volume" : "Return on capital", signedPercent(row.pnlPercent), signOf(row.pnlUsd)),
		figure(`P&L at trade (${count(row.valuedTradeCount)} of ${count(row.tradeCount)} trades)`, signedUsd(row.pnlAtTradeUsd), signOf(row.pnlAtTradeUsd)),
	);
	return of ? [el("p", { class: "note" }, `These figures are those ${of}; everything below covers all trades.`), all] : [all];
}

function tradesPart() {
	if (state.loading && !state.trades.length) return [el("div", { class: "skeleton tall", role: "status" }, "Loading trades…")];
	if (state.error && !state.trades.length) {
		const again = el("button", { type: "button", click: () => retry() }, "Try again");
		return [el("p", { class: "note bad", role: "alert" }, `The trades cannot be shown: ${state.error.message} `, again)];
	}
	if (!state.trades.length) return [el("p", { class: "note" }, "No verified trades yet.")];
	return [activityPart(), tokensPart(), listPart()];
}

function retry() {
	state.error = null;
	load(state, LOADED_MAX);
	draw();
}

function activityPart() {
	const days = activity(state.trades, now());
	const total = days.reduce((sum, one) => sum + one.count, 0);
	const items = days.map((one) => ({ value: one.count, label: `${utcDay(one.at)}: ${count(one.count)}` }));
	return el(
		"section",
		{},
		el("h3", {}, "Trade activity", el("small", {}, `${count(total)} in 30 days`)),
		columns(items, `Trades per day over the last 30 days, ${total} in all`),
		el("div", { class: "axis", "aria-hidden": "true" }, el("span", {}, utcDay(days[0].at)), el("span", {}, "today")),
	);
}

function tokensPart() {
	const { tokens, uncounted } = tokenFlows(state.trades, state.prices);
	const most = Math.max(...tokens.map((one) => Math.abs(one.netUsd ?? 0)), 1e-9);
	const part = el(
		"section",
		{},
		el("h3", {}, "Net flow per token", el("small", {}, "at current prices; not a gain or loss")),
		el("ul", { class: "tokens" }, ...tokens.map((one) => tokenLine(one, most))),
	);
	if (uncounted) {
		const trades = uncounted === 1 ? "1 trade is" : `${count(uncounted)} trades are`;
		part.append(el("p", { class: "note" }, `${trades} left out of P&L: one of the tokens has no price yet, or a pool cannot pay that much.`));
	}
	return part;
}

function tokenLine(flow, most) {
	const worth = flow.netUsd === null
		? el("span", { class: "unpriced", title: "No price is known for this token" }, "unpriced")
		: el("span", { class: "num" }, signedUsd(flow.netUsd));
	const net = flow.netUsd === null ? flow.received - flow.given : flow.counted; // the amount that the dollars stand for
	const detail = `net ${net > 0n ? "+" : ""}${units(net, flow.decimals)}`;
	const at = flow.priceUsd === null ? "" : ` at ${price(flow.priceUsd)}`;
	return el(
		"li",
		{},
		tokenLabel(flow.token),
		balance((flow.netUsd ?? 0) / most),
		worth,
		el("small", {}, `${detail}${at} · ${count(flow.trades)} ${flow.trades === 1 ? "trade" : "trades"}`),
	);
}

const units = (value, decimals) => (decimals === null ? `${amount(value, 0)} units` : shortAmount(value, decimals));

function listPart() {
	const shown = state.trades.slice(0, state.shown);
	const part = el(
		"section",
		{},
		el("h3", {}, "Trades", el("small", {}, `${count(state.trades.length)}${nextOf(state.lists) ? "+" : ""}`)),
		el("ol", { class: "trades" }, ...shown.map(tradeLine)),
	);
	if (state.shown < state.trades.length || nextOf(state.lists)) {
		part.append(el("button", { type: "button", class: "more", click: more }, "Show more"));
	}
	return part;
}

async function more() {
	state.shown += SHOWN_STEP;
	if (state.shown > state.trades.length && nextOf(state.lists)) await load(state, state.trades.length + 1);
	else draw();
}

/** @param {import("./types.js").Trade} trade */
function tradeLine(trade) {
	const side = (units_, id) => {
		const { decimals = null } = state.prices[id] ?? {};
		return el("span", {}, units(BigInt(units_), decimals), " ", tokenLabel(id));
	};
	return el(
		"li",
		{},
		el("div", {}, side(trade.amount_in, trade.token_in), el("span", { class: "arrow", "aria-label": "to" }, "→"), side(trade.amount_out, trade.token_out)),
		el("small", {}, ageOf((trade.block_time ?? trade.burn_block_time) * 1000), transaction(trade.txid)),
	);
}

/** A link for a transaction id; anything else is text. */
function transaction(txid) {
	const label = el("code", {}, shortAddress(txid));
	if (!/^0x[0-9a-f]{64}$/.test(txid)) return label;
	const name = `Transaction ${shortAddress(txid)} in the explorer`;
	const href = `${EXPLORER}/txid/${txid}?chain=mainnet`;
	return el("a", { href, rel: "noopener noreferrer", target: "_blank", "aria-label": name }, label);
}
