/** The runs of 30 days, by task, outcome, trigger and time: durations, lateness, and a table of all. */

import { now } from "./clock.js";
import { el, keyed } from "./dom.js";
import { clockSeconds, count, day, NONE } from "./format.js";
import { plot, summaryOf } from "./plot.js";
import { getJson } from "./request.js";
import { cellsOf, selectOf, tableOf } from "./table.js";
import { duration, taskTitle } from "./task-words.js";
import { linkTo } from "./views.js";

const PATH = "/api/admin/scheduler/runs";
const PAGE = 200;
const QUESTIONS_MAX = 12; // a rare outcome is searched for in steps
const HOUR_MS = 3_600_000;
const PERIODS = [["6h", "6 hours", 6], ["1d", "a day", 24], ["7d", "7 days", 168], ["", "30 days", 720]];
const OUTCOMES = ["ok", "partial", "limited", "failed", "stopped", "interrupted", "running"];
const TRIGGERS = ["alarm", "refresh", "rerun"];
const COLUMNS = ["Run", "Started", "Task", "By", "Outcome", "Took", "Late", "Calls", "Reason"];
const NUMBERS = ["Took", "Late", "Calls"];

/** How long after its slot it began; null for a refresh. @param {import("./types.js").RunRecord} run */
export const lateOf = (run) => (run.slotAt === null ? null : Math.max(0, run.startedAt - run.slotAt));

/** Matching runs, and where to continue: asks until a page is full or all runs have been searched. */
async function ask(filters, cursor, key) {
	const runs = [];
	let next = cursor;
	for (let question = 0; question < QUESTIONS_MAX; question++) {
		const query = new URLSearchParams({ ...filters, limit: PAGE - runs.length, ...(next ? { cursor: next } : {}) });
		/** @type {import("./types.js").RunList} */
		const answer = (await getJson(`${PATH}?${query}`, { key })).body;
		runs.push(...answer.runs);
		next = answer.next;
		if (next === null || runs.length >= PAGE) break;
	}
	return { runs, next };
}

export async function show(body, { query, session, go }) {
	const chosen = Object.fromEntries(["task", "outcome", "trigger", "period"].map((name) => [name, query.get(name) ?? ""]));
	const { status, key } = session();
	const filter = (name, label, options) =>
		selectOf(label, options, chosen[name], (value) => go(linkTo("runs", { ...chosen, [name]: value })));
	const all = (label, values, shown = (value) => value) => [["", label], ...values.map((value) => [value, shown(value)])];
	const filters = el(
		"div",
		{ class: "filters" },
		filter("task", "Task", all("all tasks", Object.keys(status.tasks), taskTitle)),
		filter("outcome", "Outcome", all("all outcomes", OUTCOMES)),
		filter("trigger", "Started by", all("anything", TRIGGERS)),
		filter("period", "Period", PERIODS),
		el("a", { href: linkTo("days", { task: chosen.task }) }, "30 days, day by day"),
	);
	const note = el("p", { class: "note", role: "status" }, "Asking.");
	const charts = el("div", { class: "charts" });
	const { part, body: rows } = tableOf("Table of runs", COLUMNS, NUMBERS);
	const more = el("button", { type: "button", hidden: true }, "Older runs");
	body.replaceChildren(filters, note, charts, part, more);
	const hours = PERIODS.find(([value]) => value === chosen.period)?.[2] ?? 720;
	const asked = { since: Math.round(now() - hours * HOUR_MS) };
	for (const name of ["task", "outcome", "trigger"]) if (chosen[name]) asked[name] = chosen[name];
	let runs = [];

	async function load(cursor) {
		more.disabled = true;
		const answer = await ask(asked, cursor, key);
		more.disabled = false;
		runs = cursor ? [...runs, ...answer.runs] : answer.runs;
		keyed(rows, runs, (run) => `${run.id} ${run.outcome}`, row, () => {}); // a focused row keeps the focus
		charts.replaceChildren(...chartsOf(runs));
		const ended = answer.next === null ? "" : ` There are older ones. The oldest shown began on ${day(runs.at(-1)?.startedAt ?? null)}, ${clockSeconds(runs.at(-1)?.startedAt ?? null)}.`;
		note.textContent = runs.length ? `${count(runs.length)} runs, newest first.${ended}` : "No matching runs.";
		more.hidden = answer.next === null;
		more.onclick = () => load(answer.next);
	}

	charts.addEventListener("click", (event) => {
		const { run } = event.target.closest("[data-run]")?.dataset ?? {};
		if (run) go(linkTo("run", { run }));
	});
	await load(null);
	return (event) => event?.event === "run.ended" && runs.length <= PAGE && load(null).catch(() => {});
}

/** @param {import("./types.js").RunRecord} run */
function row(run) {
	const cells = [
		el("a", { href: linkTo("run", { run: run.id }) }, String(run.id)),
		`${day(run.startedAt)}, ${clockSeconds(run.startedAt)}`,
		taskTitle(run.task),
		run.trigger,
		run.outcome,
		duration(run.durationMs),
		lateOf(run) === null ? NONE : duration(lateOf(run)),
		count(run.calls),
		run.error?.message ?? run.reason ?? "",
	];
	return el("tr", { "data-outcome": run.outcome }, ...cellsOf(cells, NUMBERS.map((name) => COLUMNS.indexOf(name))));
}

/** For each task: how long its runs took, and how late they began. */
function chartsOf(runs) {
	const [from, to] = [runs.at(-1)?.startedAt ?? 0, runs[0]?.startedAt ?? 0];
	return [...new Set(runs.map((run) => run.task))].sort().flatMap((task) => {
		const own = runs.filter((run) => run.task === task).reverse();
		const chart = (title, valueOf) => {
			const points = own.map((run) => ({
				at: run.startedAt,
				value: valueOf(run),
				outcome: run.outcome,
				run: run.id,
				words: `Run ${run.id}, ${clockSeconds(run.startedAt)}, ${run.outcome}: ${duration(valueOf(run))}`,
			}));
			const values = points.map((point) => point.value).filter((value) => value !== null);
			if (!values.length) return null;
			const { median, highest } = summaryOf(values);
			const words = `median ${duration(median)}, at most ${duration(highest)}`;
			const label = `${taskTitle(task)}, ${title.toLowerCase()}: ${count(values.length)} runs, ${words}`;
			return el(
				"figure",
				{},
				el("figcaption", {}, el("b", {}, `${taskTitle(task)}: ${title.toLowerCase()}`), " ", el("small", {}, words)),
				plot({ points, from, to, format: (value) => duration(Math.round(value)), label }),
			);
		};
		return [chart("Duration", (run) => run.durationMs), chart("Lateness", lateOf)].filter(Boolean);
	});
}
