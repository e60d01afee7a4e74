/** One run: how it was started, what it did, how it ended, what it logged. */

import { now } from "./clock.js";
import { el } from "./dom.js";
import { clockSeconds, count, isoTime, moment, NONE } from "./format.js";
import { getJson } from "./request.js";
import { cellsOf, factsOf, tableOf } from "./table.js";
import { duration, taskTitle, words } from "./task-words.js";
import { lateOf } from "./view-runs.js";
import { linkTo } from "./views.js";

const STARTED_BY = {
	alarm: "the alarm, for its slot",
	refresh: "a refresh",
	rerun: "the alarm, again: the previous run was interrupted or limited",
};
const OWN = new Set(["startedAt", "durationMs", "rejectionReasons"]);
const KEPT = "The first 10 and the last 20 lines of a run are kept. They are stored when it ends.";

export async function show(body, { query, session, named }) {
	const number = query.get("run") ?? "";
	const path = `/api/admin/scheduler/runs/${encodeURIComponent(number)}`;
	const { key } = session();
	const [facts, note, log] = [el("div", { class: "view-body" }), el("p", { class: "note" }), el("ol", { class: "lines" })];
	const region = el("div", { class: "scroll log", tabindex: 0, role: "region", "aria-label": "Log lines" }, log);

	async function load() {
		/** @type {import("./types.js").RunDetail} */
		const detail = (await getJson(path, { key })).body;
		named(`Run ${detail.run.id} of ${taskTitle(detail.run.task)}`);
		const focused = facts.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
		facts.replaceChildren(...parts(detail));
		[...facts.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
		note.textContent = noteOn(detail.log);
		log.replaceChildren(...detail.log.lines.map(lineOf));
		if (region.parentNode !== body) body.replaceChildren(facts, el("h3", {}, "Log lines"), note, region);
		return detail.run.outcome === "running";
	}

	let isRunning = await load();
	return (event) => {
		const isOurs = event?.event?.startsWith("run.") && String(event.run) === number;
		if (isRunning && (isOurs || !event)) load().then((still) => { isRunning = still; }, () => {});
	};
}

const took = (ms) => (ms < 60_000 ? duration(ms) : `${Math.floor(ms / 60_000)} min ${Math.floor(ms / 1000) % 60} s`);
const at = (time) => el("time", { datetime: isoTime(time) }, moment(time));

/** @param {import("./types.js").RunDetail} detail */
function parts({ run, progress }) {
	const { done, total } = progress ?? run;
	const facts = factsOf([
		["Outcome", el("span", { "data-outcome": run.outcome, class: "outcome" }, run.outcome)],
		["Started by", startedBy(run.trigger)],
		["Slot", run.slotAt === null ? "none: it was requested" : at(run.slotAt)],
		["Started", at(run.startedAt)],
		["Ended", run.endedAt === null ? "under way" : at(run.endedAt)],
		["Took", took(run.durationMs ?? Math.max(0, Math.round(now() - run.startedAt)))],
		["Late", lateOf(run) === null ? NONE : duration(lateOf(run))],
		["Slots missed before it", count(run.missedSlots)],
		["Progress", total ? `${count(done)} of ${count(total)}` : NONE],
		["Calls to its upstream", count(run.calls)],
	]);
	const why = run.error ? `${run.error.class}: ${run.error.message}` : run.reason;
	return [
		el("p", { class: "trail" }, el("a", { href: linkTo("runs", { task: run.task }) }, `All runs of ${taskTitle(run.task)}`)),
		why ? el("p", { class: "why", "data-mood": run.error ? "bad" : "warn" }, why) : null,
		facts,
		...counters(run.result),
		...refused(run.result?.rejectionReasons),
	].filter((part) => part !== null);
}

function startedBy(trigger) {
	const text = STARTED_BY[trigger] ?? trigger;
	return trigger === "refresh" ? el("span", {}, `${text}: the `, el("a", { href: linkTo("audit") }, "audit log"), " shows whose") : text;
}

function counters(result) {
	const entries = Object.entries(result ?? {}).filter(([name, value]) => !OWN.has(name) && value !== "");
	if (!entries.length) return [];
	const { part, body } = tableOf("Counters", ["Counter", "Value"], ["Value"]);
	body.append(...entries.map(([name, value]) => el("tr", {}, ...cellsOf([words(name), valueWords(value)], [1]))));
	return [el("h3", {}, "Counters"), part];
}

function valueWords(value) {
	if (typeof value === "number") return count(value);
	if (value !== null && typeof value === "object") {
		return Object.entries(value).map(([name, one]) => `${words(name)} ${valueWords(one)}`).join(", ") || "none";
	}
	return value === null ? NONE : String(value);
}

/** Its refusals by reason; each links to the refusals with that reason. */
function refused(reasons) {
	const counts = Object.entries(reasons ?? {});
	if (!counts.length) return [];
	const item = ([code, n]) => el("li", {}, el("a", { href: linkTo("refusals", { code }) }, words(code)), ` ${count(n)}`);
	return [el("h3", {}, "Refused"), el("ul", { class: "inline" }, ...counts.map(item))];
}

/** @param {import("./types.js").RunLines} log */
function noteOn({ lines, leftOut }) {
	const missing = leftOut ? ` ${count(leftOut)} in between were left out.` : "";
	return `${lines.length ? "" : "No log lines of this run are kept. "}${KEPT}${missing}`;
}

const lineOf = (line) =>
	el(
		"li",
		{ "data-mood": line.level === "INFO" ? "calm" : "warn" },
		el("time", { datetime: isoTime(line.at) }, clockSeconds(line.at)),
		el("code", {}, line.event),
		el("span", {}, line.text),
	);
