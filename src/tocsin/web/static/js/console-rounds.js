/** The rounds of the console: status, how long, what one waits for, and what differs since its result. */

import { setCountdown } from "./clock.js";
import { byId, el } from "./dom.js";
import { moment, NONE, words } from "./format.js";
import { getJson } from "./request.js";

const PATH = "/api/admin/competition/finalize";
const COLUMNS = ["Round", "Status", "Until", "Version", "Notes"];
const details = byId("rounds");
const body = el("tbody");
const note = el("p", { class: "note", role: "status" });
const head = el("tr", {}, ...COLUMNS.map((name) => el("th", { scope: "col" }, name)));
const table = el("table", {}, el("thead", {}, head), body);
details.append(note, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rounds" }, table));

/** Shows nothing while the console is locked. */
export async function drawRounds(key) {
	if (!key) return body.replaceChildren();
	try {
		/** @type {import("./types.js").RoundList} */
		const { now, rounds, rule } = (await getJson(PATH, { key })).body;
		const made = "`tocsin round add` or `tocsin round every` makes one.";
		note.textContent = rounds.length ? (rule ? "A rule adds further rounds." : "") : `None. ${made}`;
		body.replaceChildren(...rounds.map((listed) => row(listed, now)));
	} catch (error) {
		note.textContent = error.message;
	}
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
	return el("tr", {}, ...[round.round_id, status, time, `${round.version}`, notes.join("; ") || NONE].map((cell) => el("td", {}, cell)));
}
