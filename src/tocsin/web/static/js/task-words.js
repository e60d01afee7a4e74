/** Tasks, results and events in words. Pure. */

import { clock, clockSeconds, count, NONE, span } from "./format.js";

/** @type {Record<string, string>} */
const titles = {};

/** Take the titles of the tasks from a status. @param {import("./types.js").Status} status */
export function learnTitles(status) {
	for (const [name, task] of Object.entries(status.tasks)) titles[name] = task.title;
}

export const taskTitle = (name) => titles[name] || words(name);

/** The counters of a result in words, without zeros. */
export function resultWords(result) {
	return Object.entries(result ?? {})
		.filter(([name, value]) => typeof value === "number" && value && name !== "startedAt" && name !== "durationMs")
		.map(([name, value]) => `${words(name)} ${count(value)}`)
		.join(" · ");
}

/** The block up to which the record is proven complete, and why not further. @param {import("./types.js").Completeness | undefined} complete */
export function completeWords(complete) {
	if (!complete) return ""; // an older service
	const { untilBlock, obstacle } = complete;
	if (untilBlock === null) return `Not proven to be complete: ${obstacle}.`;
	return `Proven complete up to block ${count(untilBlock)}${obstacle ? `. Not further: ${obstacle}` : ""}.`;
}

/** The mood of a run, for colors. An incomplete run did a part of its work, which is kept. */
export const moodOf = (outcome) => ({ ok: "live", partial: "warn", limited: "warn" })[outcome] ?? "bad";

/** The result of a refresh. @param {import("./types.js").RefreshResult} result */
export function refreshWords(name, result) {
	const { outcome, error, reason, joined, id } = result.run;
	const which = joined ? `joined run ${id}, which was under way` : `run ${id}`;
	if (outcome !== "ok") return `${taskTitle(name)} ${outcome} (${which}): ${error?.message ?? reason ?? "no reason given"}`;
	return `${taskTitle(name)} done in ${duration(result.durationMs)} (${which}): ${resultWords(result)}`;
}

const EVENTS = {
	"run.started": (e) => `run ${e.run} started by ${e.trigger}`,
	"run.progressed": (e) => `run ${e.run} at ${count(e.done)} of ${count(e.total)}`,
	"run.ended": (e) =>
		[`run ${e.run} ${e.outcome} after ${duration(e.durationMs)}`, e.error?.message ?? e.reason, resultWords(e.result)].filter(Boolean).join(" · "),
	"run.interrupted": (e) => `run ${e.run} was interrupted by the end of its process`,
	"alarm.armed": (e) => `next ring at ${clockSeconds(e.nextAlarmAt)}`,
	"scheduler.paused": (e) => `${e.task ?? "all tasks"} until ${clock(e.until)}`,
	"scheduler.resumed": (e) => `scheduled runs of ${e.task ?? "all tasks"} continue`,
	"breaker.opened": (e) => `after ${count(e.failures)} failures in a row`,
	"budget.overdrawn": (e) => e.reason,
	"admin.acted": (e) => [`${e.key}: ${e.action} ${e.target ?? ""} ${e.outcome}`, e.detail, e.reason].filter(Boolean).join(" · "),
};

const WORRYING = new Set(["run.interrupted", "breaker.opened", "budget.overdrawn", "scheduler.paused", "scheduler.drained"]);

/** `{title, text, mood}`; an unknown event is shown with its own fields. @param {import("./types.js").SchedulerEvent} event */
export function eventWords(event) {
	const { seq, at, event: name, task, upstream, ...fields } = event;
	const failed = WORRYING.has(name) || ["failed", "partial", "limited"].includes(event.outcome);
	const known = EVENTS[name];
	const about = task ? `${taskTitle(task)}: ` : upstream ? `${upstream}: ` : "";
	return { title: name, text: about + (known ? known(event) : JSON.stringify(fields)), mood: failed ? "warn" : "calm" };
}

/** How long a run took. */
export function duration(ms) {
	if ((ms ?? null) === null) return NONE;
	if (ms < 1000) return `${ms} ms`;
	return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : span(ms);
}

/** `rejectionReasons` and `sender_not_registered` as words. */
export function words(name) {
	return name
		.replace(/_/g, " ")
		.replace(/([a-z])([A-Z])/g, "$1 $2")
		.toLowerCase();
}
