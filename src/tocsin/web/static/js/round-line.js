/** The banner above the board: the round that runs, rounds that wait, and the last winner. */

import { leftUntil, now } from "./clock.js";
import { byId, el } from "./dom.js";
import { count, DATE, TIME, time } from "./format.js";
import { getJson } from "./request.js";

const weekday = time({ weekday: "long", ...TIME, timeZone: "UTC" });
const date = time({ ...DATE, ...TIME, timeZone: "UTC" });
/** "Friday 00:00" within a week, otherwise "Nov 20, 00:00". */
const moment = (at) => (at - now() < 7 * 86_400_000 ? weekday(at) : date(at));

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
	const line = (round, ...parts) => el("p", {}, el("a", { href: `/rounds/${encodeURIComponent(round.round_id)}` }, titleOf(round.round_id)), ...parts);
	const lines = [
		running && line(running, " · ends ", ...timeOf(running.ends_at), prizesOf(running)),
		!running && next && line(next, " · starts ", ...timeOf(next.starts_at), prizesOf(next)),
		...waiting.map((round) => line(round, " is over; its result is awaited")),
		latest && line(latest.round, latest.sentence.slice(titleOf(latest.round.round_id).length)),
	].filter(Boolean);
	byId("round").replaceChildren(...lines);
}

/** "Week 2" for `week-2-2026-11-13`; another id is its own title. Pure. */
export function titleOf(id) {
	const [, word, number] = /^([a-z]+)-(\d{1,6})(?:-\d{4}-\d{2}-\d{2})?$/.exec(id) ?? [];
	return word ? `${word[0].toUpperCase()}${word.slice(1)} ${number}` : id;
}

const timeOf = (atS) => [`${moment(atS * 1000)} UTC, in `, leftUntil(atS * 1000)];

function prizesOf({ rules }) {
	const sats = Object.values(rules.rewards).reduce((sum, prize) => sum + prize, 0);
	return sats ? ` · ${count(sats)} sats in prizes` : null;
}
