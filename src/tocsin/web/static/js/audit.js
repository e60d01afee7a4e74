/** What operators did, newest first: read when somebody opens the list, and again after each action. */

import { byId, el } from "./dom.js";
import { isoTime, moment, NONE } from "./format.js";
import { getJson } from "./request.js";

const PATH = "/api/admin/scheduler/audit?limit=100";
const COLUMNS = ["At", "Key", "From", "Action", "Outcome", "Reason"];
const details = byId("audit");
const body = el("tbody");
const note = el("p", { class: "note", role: "status" });
const head = el("tr", {}, ...COLUMNS.map((name) => el("th", { scope: "col" }, name)));
const table = el("table", {}, el("thead", {}, head), body);
details.append(note, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Actions" }, table));

/** Shows nothing while the list is closed, as it is when the console is locked. */
export async function drawAudit(key) {
	if (!details.open || !key) return body.replaceChildren();
	try {
		/** @type {import("./types.js").AuditList} */
		const { records } = (await getJson(PATH, { key })).body;
		note.textContent = records.length ? "" : "Nobody has done anything yet.";
		body.replaceChildren(...(details.open ? records.map(row) : []));
	} catch (error) {
		note.textContent = error.message;
	}
}

/** @param {import("./types.js").AuditRecord} record */
function row(record) {
	const cells = [
		el("time", { datetime: isoTime(record.at) }, moment(record.at)),
		record.key,
		record.client,
		[record.action, record.target].filter(Boolean).join(" "),
		record.outcome === "begun" ? "no end is known" : [record.outcome, record.detail].filter(Boolean).join(": "),
		record.reason ?? NONE,
	];
	return el("tr", {}, ...cells.map((cell) => el("td", {}, cell)));
}
