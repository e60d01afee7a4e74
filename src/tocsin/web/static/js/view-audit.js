/** The actions of operators, newest first: read when the view opens, and again after each action. */

import { el } from "./dom.js";
import { isoTime, moment, NONE } from "./format.js";
import { getJson } from "./request.js";
import { cellsOf, tableOf } from "./table.js";

const PATH = "/api/admin/scheduler/audit?limit=200";

export async function show(body, { session }) {
	const { key } = session();
	const note = el("p", { class: "note", role: "status" });
	const { part, body: rows } = tableOf("Actions", ["At", "Key", "From", "Action", "Outcome", "Reason"]);
	body.replaceChildren(note, part);

	async function load() {
		/** @type {import("./types.js").AuditList} */
		const { records } = (await getJson(PATH, { key })).body;
		note.textContent = records.length ? "" : "No actions yet.";
		rows.replaceChildren(...records.map(row));
	}

	await load();
	return (event) => event?.event === "admin.acted" && load().catch((error) => { note.textContent = error.message; });
}

/** @param {import("./types.js").AuditRecord} record */
function row(record) {
	const cells = [
		el("time", { datetime: isoTime(record.at) }, moment(record.at)),
		record.key,
		record.client,
		[record.action, record.target].filter(Boolean).join(" "),
		record.outcome === "begun" ? "end unknown" : [record.outcome, record.detail].filter(Boolean).join(": "),
		record.reason ?? NONE,
	];
	return el("tr", {}, ...cellsOf(cells));
}
