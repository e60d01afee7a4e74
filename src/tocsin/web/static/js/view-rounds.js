/** The rounds: status, end, what each waits for, and what differs since its result. */

import { leftUntil } from "./clock.js";
import { el } from "./dom.js";
import { count, moment, NONE, span } from "./format.js";
import { getJson } from "./request.js";
import { titleOf } from "./round-line.js";
import { cellsOf, tableOf } from "./table.js";
import { words } from "./task-words.js";

const PATH = "/api/admin/competition/finalize";

export async function show(body, { session }) {
	const { key } = session();
	const note = el("p", { class: "note", role: "status" });
	const { part, body: rows } = tableOf("Table of rounds", ["Round", "Status", "When", "Version", "Notes"]);
	body.replaceChildren(note, part);

	async function load() {
		/** @type {import("./types.js").RoundList} */
		const { now, rounds, rule } = (await getJson(PATH, { key })).body;
		const made = "`tocsin round add` or `tocsin round every` adds one.";
		note.textContent = rounds.length ? (rule ? `A new round starts every ${span(rule.period_s * 1000)}.` : "") : `None. ${made}`;
		rows.replaceChildren(...rounds.map((listed) => row(listed, now)));
	}

	await load();
	return (event) => !event && load().catch((error) => { note.textContent = error.message; });
}

/** @param {import("./types.js").ListedRound} listed */
function row({ round, discrepancies, rewards }, now) {
	const open = round.status === "open";
	const [state, until] = stateOf(round, now);
	const final = round.finalized_at ? moment(Date.parse(round.finalized_at)) : NONE;
	const prizes = Object.values(round.rules.rewards).reduce((sum, prize) => sum + prize, 0);
	const notes = [
		prizes && !rewards.length && `${count(prizes)} sats to win`,
		...rewards.map(({ category, erc8004_agent_id: agent, amount_sats: sats, status }) => `${words(category)}: agent ${agent}, ${count(sats)} sats (${words(status)})`),
		round.waiting_reason && `waits: ${round.waiting_reason}`,
		discrepancies && `${discrepancies} discrepancies since its result`,
		round.note,
	].filter(Boolean);
	const name = el("a", { href: `/rounds/${encodeURIComponent(round.round_id)}` }, titleOf(round.round_id));
	const when = open ? el("span", {}, "in ", leftUntil(until * 1000)) : final;
	return el("tr", {}, ...cellsOf([name, open ? state : words(round.status), when, `${round.version}`, notes.join("; ") || NONE]));
}

/** What an open round does next, and when. */
function stateOf(round, now) {
	if (round.starts_at > now) return ["starts", round.starts_at];
	return round.ends_at > now ? ["runs, ends", round.ends_at] : ["over, closes", round.grace_ends_at];
}
