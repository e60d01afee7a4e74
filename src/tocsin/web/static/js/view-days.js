/** The totals of each day: how long the runs of a task took, and how many were not complete. */

import { el } from "./dom.js";
import { count, utcDay } from "./format.js";
import { plot, summaryOf } from "./plot.js";
import { getJson } from "./request.js";
import { cellsOf, selectOf, tableOf } from "./table.js";
import { duration, taskTitle } from "./task-words.js";
import { linkTo } from "./views.js";

const PATH = "/api/admin/scheduler/days?limit=30";
const DAY_MS = 86_400_000;
const COLUMNS = ["Day", "Runs", "Not complete", "Calls", "Average", "Longest"];

/** @param {import("./types.js").TaskTotals} totals */
export const averageOf = (totals) => (totals.runs ? Math.round(totals.durationMs / totals.runs) : null);
export const incompleteOf = (totals) => totals.runs - (totals.outcomes.ok ?? 0);

export async function show(body, { query, session, named, go }) {
	const { key, status } = session();
	const tasks = Object.keys(status.tasks);
	const task = tasks.includes(query.get("task")) ? query.get("task") : tasks[0];
	/** @type {import("./types.js").DayList} */
	const { days } = (await getJson(PATH, { key })).body;
	named(`Days of ${taskTitle(task)}`);
	const known = days.filter(({ tasks: own }) => own[task]).map(({ day: name, tasks: own }) => ({ at: Date.parse(name), name, totals: own[task] }));
	const filter = selectOf("Task", tasks.map((name) => [name, taskTitle(name)]), task, (value) => go(linkTo("days", { task: value })));
	const { part, body: rows } = tableOf("Table of days", COLUMNS, COLUMNS.slice(1));
	rows.append(...known.map(row));
	body.replaceChildren(
		el("div", { class: "filters" }, filter, el("a", { href: linkTo("runs", { task }) }, "Its runs")),
		el("p", { class: "note", role: "status" }, known.length ? "Days are in UTC. A run belongs to the day on which it started." : "This task has not run yet."),
		...(known.length ? [el("div", { class: "charts" }, chart("Average duration", known, averageOf, duration), chart("Runs that were not complete", known, incompleteOf, (n) => count(Math.round(n))))] : []),
		part,
	);
}

function chart(title, known, valueOf, format) {
	const points = known.map(({ at, totals }) => ({ at, value: valueOf(totals) })).reverse();
	const { median, highest } = summaryOf(points.map((point) => point.value));
	const words = `median ${format(median)}, at most ${format(highest)}`;
	const [from, to] = [points[0].at, Math.max(points.at(-1).at, points[0].at + DAY_MS)];
	const shown = (value) => format(Math.max(0, Math.round(value)));
	return el(
		"figure",
		{},
		el("figcaption", {}, el("b", {}, title), " ", el("small", {}, words)),
		plot({ points, from, to, format: shown, label: `${title}: ${words}`, line: true, fromZero: true, gapMs: 1.5 * DAY_MS, dayOf: utcDay }),
	);
}

function row({ name, totals }) {
	const cells = [name, count(totals.runs), count(incompleteOf(totals)), count(totals.calls), duration(averageOf(totals)), duration(totals.durationMaxMs)];
	return el("tr", {}, ...cellsOf(cells, [1, 2, 3, 4, 5]));
}
