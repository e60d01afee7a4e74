/** The state of the service. Pure. */

import { remaining } from "./countdown.js";
import { clock } from "./format.js";
import { taskTitle } from "./task-words.js";

const TITLES = {
	ready: "Ready",
	starting: "Starting",
	partial: "Not complete",
	limited: "Limited",
	paused: "Paused",
	overdue: "Overdue",
	failing: "Failing",
	disabled: "Switched off",
	broken: "Not working",
};

/** @param {import("./types.js").SchedulerOverview} overview */
export function verdictOf({ status, health }, at) {
	if (!status.active) {
		return { mood: "bad", title: "Not the active scheduler", text: "Another instance does the work; this one is inactive." };
	}
	const mood = health.state === "ready" ? "live" : health.ready ? "warn" : "bad";
	return { mood, title: TITLES[health.state], text: textOf(status, health, at) };
}

function textOf(status, { state, reasons, notes }, at) {
	if (state === "paused" && status.pausedUntil) {
		return `No scheduled run starts until ${clock(status.pausedUntil)}, in ${remaining(status.pausedUntil - at)}.`;
	}
	if (state !== "ready") return [...reasons, ...notes].map((reason) => `${reason}.`).join("\n");
	const running = Object.keys(status.tasks).filter((name) => status.tasks[name].running);
	return running.length ? `Running now: ${running.map(taskTitle).join(" and ")}.` : "Every task is on time.";
}
