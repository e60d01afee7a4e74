/** The rounds: status, end, what each waits for, and what differs since its result. */

import { setCountdown } from "./countdown.js";
import { el } from "./dom.js";
import { moment, NONE } from "./format.js";
import { getJson } from "./request.js";
import { cellsOf, tableOf } from "./table.js";
import { words } from "./task-words.js";

const PATH = "/api/admin/competition/finalize";

export async function show(body, { session }) {
	const { key } = session();
	const note = el("p", { class: "note", role: "status" });
	const { part, body: rows } = tableOf("Table of rounds", ["Round", "Status", "Until", "Version", "Notes"]);
	body.replaceChildren(note, part);

	async function load() {
		/** @type {import("./types.js").RoundList} */
		const { now, rounds, rule } = (await getJson(PATH, { key })).body;
		const made = "`tocsin round add` or `tocsin round every` adds one.";
		note.textContent = rounds.length ? (rule ? "A rule adds further rounds." : "") : `None. ${made}`;
		rows.replaceChildren(...rounds.map((listed) => row(listed, now)));
	}

	await load();
	return (event) => !event && load().catch((error) => { note.textContent = error.message; });
}

/** @param {import("./types.js").ListedRound} listed */
function row({ round, discrepancies }, now) {
	const running = round.status === "open";
	const until = round.ends_at > now ? round.ends_at : round.grace_ends_at;
	const time = el("time");
	setCountdown(time, running ? until * 1000 : null, round.finalized_at ? moment(Date.parse(round.finalized_at)) : NONE);
	const notes = [
		round.waiting_reason && `waits: ${round.waiting_reason}`,
		discrepancies && `${discrepancies} discrepancies since its result`,
		round.note,
	].filter(Boolean);
	const status = running && round.ends_at <= now ? "open, in its grace" : words(round.status);
	return el("tr", {}, ...cellsOf([round.round_id, status, time, `${round.version}`, notes.join("; ") || NONE]));
}
