/** Is it alive, at a glance: the worst that is true, in a title and a sentence. Pure. */

import { clock, remaining, span } from "./format.js";
import { taskTitle } from "./task-words.js";

const ALARM_LATE_MS = 60_000;

/** @param {import("./types.js").Status} status */
export function verdictOf(status, at) {
	const tasks = Object.entries(status.tasks);
	const named = (test) => tasks.filter(([name, task]) => test(task, name)).map(([name]) => taskTitle(name)).join(" and ");
	if (!status.active) return bad("Not the active scheduler", "Another instance does the work; this one is drained.");
	if (status.pausedUntil) {
		const text = `No scheduled run starts until ${clock(status.pausedUntil)}, in ${remaining(status.pausedUntil - at)}.`;
		return { mood: "warn", title: "Paused", text };
	}
	if (status.nextAlarmAt === null) return bad("No alarm is armed", "Nothing will run by itself. Restart the service, or resume.");
	const lateMs = at - status.nextAlarmAt;
	if (lateMs > ALARM_LATE_MS && !tasks.some(([, task]) => task.running)) {
		return bad("The alarm is late", `It should have rung ${span(lateMs)} ago.`);
	}
	const overdue = named((task) => task.overdue);
	if (overdue) return bad("Overdue", `${overdue}: no success for more than two cadences.`);
	const failing = named((task) => task.failing);
	if (failing) return bad("Failing", `${failing}: every recent run failed.`);
	const held = named((_, name) => status.nextRunAfter[name] > at);
	if (held) return warn("Holding back", `${held}: asked to slow down, and waiting.`);
	const failed = named((_, name) => status.consecutiveFailures[name] > 0);
	if (failed) return warn("Alive, with a failure", `${failed}: the last run failed; the next slot tries again.`);
	const off = named((task) => !task.enabled);
	if (off) return warn("Alive, partly off", `${off}: disabled in the settings.`);
	const running = named((task) => task.running);
	return { mood: "live", title: "Alive", text: running ? `Running now: ${running}.` : "Every task is on time." };
}

const bad = (title, text) => ({ mood: "bad", title, text });
const warn = (title, text) => ({ mood: "warn", title, text });
