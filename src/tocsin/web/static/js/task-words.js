/** Tasks, results and events in words. Pure. */

import { clock, clockSeconds, count, duration, words } from "./format.js";

const TITLES = { tenero: "Token prices", sweep: "Swap sweep" };

export const taskTitle = (name) => TITLES[name] ?? words(name);

/** What a result counted, in its own words; what did not happen is not told. */
export function resultWords(result) {
	return Object.entries(result ?? {})
		.filter(([name, value]) => typeof value === "number" && value && name !== "startedAt" && name !== "durationMs")
		.map(([name, value]) => `${words(name)} ${count(value)}`)
		.join(" · ");
}

/** What came of a refresh. */
export function refreshWords(name, result) {
	const { outcome, error, joined, id } = result.run;
	const which = joined ? `joined run ${id}, which was under way` : `run ${id}`;
	if (outcome !== "ok") return `${taskTitle(name)} ${outcome} (${which}): ${error?.message ?? "no reason given"}`;
	return `${taskTitle(name)} done in ${duration(result.durationMs)} (${which}): ${resultWords(result)}`;
}

const EVENTS = {
	"run.started": (e) => `run ${e.run} started by ${e.trigger}`,
	"run.progressed": (e) => `run ${e.run} at ${count(e.done)} of ${count(e.total)}`,
	"run.ended": (e) => `run ${e.run} ${e.outcome} after ${duration(e.durationMs)}${e.error ? `: ${e.error.message}` : ` · ${resultWords(e.result)}`}`,
	"run.interrupted": (e) => `run ${e.run} was cut off by the end of its process`,
	"alarm.armed": (e) => `next ring at ${clockSeconds(e.nextAlarmAt)}`,
	"scheduler.paused": (e) => `until ${clock(e.until)}`,
	"scheduler.resumed": () => "scheduled runs go on",
	"breaker.opened": (e) => `after ${count(e.failures)} failures in a row`,
	"budget.overdrawn": (e) => e.reason,
};

const WORRYING = new Set(["run.interrupted", "breaker.opened", "budget.overdrawn", "scheduler.paused", "scheduler.drained"]);

/** `{title, text, mood}`; an event that is not known here is told with its own fields. */
export function eventWords(event) {
	const { seq, at, event: name, task, upstream, ...fields } = event;
	const failed = WORRYING.has(name) || (name === "run.ended" && event.outcome === "failed");
	const known = EVENTS[name];
	const about = task ? `${taskTitle(task)}: ` : upstream ? `${upstream}: ` : "";
	return { title: name, text: about + (known ? known(event) : JSON.stringify(fields)), mood: failed ? "warn" : "calm" };
}
