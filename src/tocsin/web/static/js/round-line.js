/** One line above the board: the current round with a countdown, rounds that wait, and the last winner. */

import { visible } from "./agent-name.js";
import { setCountdown } from "./clock.js";
import { byId, el } from "./dom.js";
import { shortAddress } from "./format.js";
import { getJson } from "./request.js";

let shown = "";

/** Without an answer the line stays as it is. */
export async function drawRound() {
	const answer = await getJson("/api/competition/rounds/current").catch(() => null);
	/** @type {import("./types.js").CurrentRounds | undefined} */
	const rounds = answer?.body;
	const text = JSON.stringify({ ...rounds, now: 0 });
	if (!rounds || text === shown) return;
	shown = text;
	const { running, next, waiting, latest } = rounds;
	const best = latest?.winners.find(({ category }) => category === "overall_pnl");
	const lines = [
		running && [`Round ${running.round_id} ends in `, countdown(running.ends_at)],
		!running && next && [`Round ${next.round_id} starts in `, countdown(next.starts_at)],
		...waiting.map((round) => [`Round ${round.round_id} is over; its result is awaited`]),
		best && [`${latest.round.round_id} was won by ${visible(best.display_name) || shortAddress(best.stx_address)}`],
	].filter(Boolean);
	byId("round").replaceChildren(...lines.flatMap((line, index) => (index ? [" · ", ...line] : line)));
}

function countdown(atS) {
	const node = el("time");
	setCountdown(node, atS * 1000, "");
	return node;
}
