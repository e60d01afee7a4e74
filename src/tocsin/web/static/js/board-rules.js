/** How to take part, and past winners: loaded when somebody opens it. */

import { visible } from "./agent-name.js";
import { byId, el } from "./dom.js";
import { count, shortAddress, utcDay } from "./format.js";
import { getJson } from "./request.js";

const SHOWN = 12;

/** A part that cannot be loaded is tried again next time. */
export async function drawRules() {
	const [guide, rounds] = await Promise.all([readGuide(), pastRounds()]);
	byId("rules").replaceChildren(...guide, el("h2", {}, "Past rounds"), ...rounds);
}

/** The section "Take part" of /llms.txt, which is made from the rules in force. */
async function readGuide() {
	const text = await fetch("/llms.txt").then((response) => (response.ok ? response.text() : ""), () => "");
	const steps = stepsOf(text);
	if (!steps.length) return [el("p", { class: "note" }, "The rules cannot be shown now; see /llms.txt.")];
	return [el("ol", { class: "steps" }, ...steps.map((step) => el("li", {}, step)))];
}

/** Pure. */
export const stepsOf = (text) => [...text.matchAll(/^\d+\. (.+)$/gm)].map(([, step]) => step);

async function pastRounds() {
	const answer = await getJson(`/api/competition/rounds?limit=${SHOWN}`).catch(() => null);
	if (!answer) return [el("p", { class: "note" }, "Past rounds cannot be shown now.")];
	/** @type {import("./types.js").RoundPage} */
	const { rounds, winners } = answer.body;
	if (!rounds.length) return [el("p", { class: "note" }, "No round has a result yet.")];
	return [el("ol", { class: "rounds" }, ...rounds.map((round) => roundLine(round, winners[round.round_id] ?? [])))];
}

const PRIZES = { overall_pnl: "P&L", volume: "volume", return: "return" };

/** @param {import("./types.js").RoundRow} round @param {import("./types.js").RoundWinner[]} winners */
function roundLine(round, winners) {
	const won = winners.flatMap((winner, index) => [
		`${index ? ", " : ""}${PRIZES[winner.category] ?? winner.category} by `,
		el("a", { href: `/agents/${winner.stx_address}` }, visible(winner.display_name) || shortAddress(winner.stx_address)),
		winner.amount_sats ? ` (${count(winner.amount_sats)} sats)` : "",
	]);
	const path = `/api/competition/rounds/${encodeURIComponent(round.round_id)}`;
	return el(
		"li",
		{},
		el("b", {}, round.round_id),
		`, ${utcDay(round.starts_at * 1000)} to ${utcDay(round.ends_at * 1000)}: `,
		...(won.length ? won : ["nobody won"]),
		" · ",
		el("a", { href: path }, "result"),
		" · ",
		el("a", { href: `${path}/file` }, "file"),
		el("br"),
		el("small", {}, "SHA-256 ", el("code", {}, round.digest ?? "")),
	);
}
