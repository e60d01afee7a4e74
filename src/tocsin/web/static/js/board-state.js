/** Whether the board is live, old or unreachable, in one place that never moves. */

import { now } from "./clock.js";
import { byId, setAttribute, setText } from "./dom.js";
import { clock, count, span } from "./format.js";
import { usd } from "./money.js";
import { freshness } from "./prices.js";

const PRICES_OLD_MS = 60 * 60_000; // when the prices themselves could not be loaded

export function drawState({ board, prices, poll }) {
	const { mood, title, text } = stateOf({ board, prices, poll, at: now() });
	const node = byId("state");
	setAttribute(node, "data-mood", mood);
	setText(byId("state-title"), title);
	setText(byId("state-text"), text);
	byId("retry").hidden = mood !== "bad";
}

/** Pure. The worst state wins. */
export function stateOf({ board, prices, poll, at }) {
	if (poll.error) return outOfReach(board, poll);
	if (board === null) return { mood: "wait", title: "Loading", text: "The board is loading." };
	if (!board.complete) return { mood: "wait", title: "Loading", text: `${count(board.rows.length)} agents so far.` };
	if (!board.pricesAsOf) {
		if (board.service?.ready === false) return { mood: "warn", title: "Not up to date", text: missing(board.sweptAt, null) };
		return { mood: "warn", title: "No prices yet", text: "Dollar values appear when prices are known." };
	}
	if (board.round?.final && board.service.ready) return { mood: "live", title: "Final", text: `This is the result of round ${board.round.roundId}.` };
	if (board.final && board.service.ready) return { mood: "live", title: "Final", text: "The competition has ended. The board uses the prices of the end." };
	const fresh = freshness(prices);
	if (prices ? fresh.mostlyStale : at - board.pricesAsOf > PRICES_OLD_MS) {
		const since = span(at - (fresh.oldestAt ?? board.pricesAsOf));
		const text = `The newest known prices are used; the oldest is ${since} old. Trades are current.`;
		return { mood: "warn", title: "Prices are stale", text };
	}
	return serviceState(board, at);
}

const TITLES = { ready: "Live", starting: "Still reading the chain", paused: "Paused", partial: "Partly up to date", limited: "Partly up to date" };

/** The state of the service, as /readyz reports it. */
function serviceState({ service, sweptAt, pricesAsOf, firstSweep }, at) {
	const swaps = sweptAt ? `Swaps as of ${clock(sweptAt)}, prices` : "Prices";
	const state = service?.state ?? "ready"; // an older service
	if (firstSweep) return { mood: "wait", title: TITLES.starting, text: `${count(firstSweep.done)} of ${count(firstSweep.total)} lists are read.` };
	const mood = { ready: "live", starting: "wait" }[state] ?? "warn";
	const text = mood === "warn" ? missing(sweptAt, pricesAsOf) : `${swaps} ${span(at - pricesAsOf)} old.`;
	return { mood, title: TITLES[state] ?? "Not up to date", text };
}

/** What a fault means for a visitor, whatever its cause. */
function missing(sweptAt, pricesAsOf) {
	const prices = pricesAsOf ? `prices are from ${clock(pricesAsOf)}` : "prices are not known yet";
	return `Trades${sweptAt ? ` since ${clock(sweptAt)}` : ""} may be missing; ${prices}. They appear by themselves.`;
}

function outOfReach(board, poll) {
	const wait = Math.max(0, Math.ceil((poll.nextAt - Date.now()) / 1000));
	const shown = board ? ` What you see is from ${clock(poll.failingSince)} or before.` : "";
	const text = `${poll.error.message}${shown} Next try in ${wait} s.`;
	return { mood: "bad", title: board ? "Not up to date" : "Nothing to show yet", text };
}

/** @param {{rows: import("./types.js").BoardRow[], pricesAsOf: number | null}} board */
export function drawSummary(board) {
	const sum = (field) => board.rows.reduce((total, row) => total + (row[field] ?? 0), 0);
	setText(byId("sum-agents"), count(board.rows.length));
	setText(byId("sum-trades"), count(sum("tradeCount")));
	setText(byId("sum-volume"), board.pricesAsOf ? usd(sum("volumeUsd"), 1_000_000) : "–");
}
