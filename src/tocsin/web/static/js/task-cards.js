/** One card per task. */

import { now, setAge } from "./clock.js";
import { setCountdown } from "./countdown.js";
import { byId, el, keyed, setAttribute, setText } from "./dom.js";
import { clock, count, moment, NONE, span } from "./format.js";
import { duration, resultWords, taskTitle } from "./task-words.js";

/**
 * `refresh(name)` is called by a card's button.
 * @param {import("./types.js").Status} status
 * @param {import("./types.js").RunRecord[]} runs
 */
export function drawTasks(status, runs, refresh) {
	keyed(byId("tasks"), Object.keys(status.tasks), (name) => name, (name) => makeCard(name, refresh), (card, name) => {
		const last = runs.find((run) => run.task === name && run.outcome !== "running");
		updateCard(card, name, status.tasks[name], status, last);
	});
}

function makeCard(name, refresh) {
	const title = taskTitle(name);
	const part = (tag, which, attributes = {}) => el(tag, { "data-part": which, ...attributes });
	const fact = (label, which) => el("div", {}, el("dt", {}, label), part("dd", which));
	return el(
		"article",
		{ class: "card task", "aria-label": title },
		el("header", {}, el("h3", {}, title), part("span", "badge", { class: "badge" })),
		el("div", { class: "running" }, part("progress", "bar", { "aria-label": `Progress of ${title}` }), part("small", "progress")),
		el("dl", {}, fact("Next run", "next"), fact("Last run", "last"), fact("Cadence", "cadence"), fact("Failures in a row", "failures")),
		part("p", "result", { class: "note" }),
		part("p", "why", { class: "note", "data-mood": "warn" }),
		el(
			"footer",
			{},
			el("button", { type: "button", "data-refresh": name, click: () => refresh(name) }, "Refresh now"),
			el("output", { class: "note", "data-message": name }),
		),
	);
}

function updateCard(card, name, task, status, last) {
	const part = (which) => card.querySelector(`[data-part=${which}]`);
	const heldUntil = status.nextRunAfter[name] > now() ? status.nextRunAfter[name] : null;
	const failures = status.consecutiveFailures[name];
	const stretched = task.effectiveCadenceMs > task.cadenceMs;
	const missed = task.missedSlots ? ` (${count(task.missedSlots)} ${task.missedSlots === 1 ? "slot" : "slots"} missed in total)` : "";
	const [badge, mood] = badgeOf(task, heldUntil);
	const texts = {
		badge,
		cadence: cadenceOf(task, stretched),
		failures: count(failures) + missed,
		result: [resultWords(last?.result), ...(task.nextAt ?? []).map((at) => `next ${moment(at)}`)].filter(Boolean).join(" · "),
		why: whyOf(task, heldUntil, stretched),
	};
	for (const [which, text] of Object.entries(texts)) setText(part(which), text);
	setAttribute(part("badge"), "data-mood", mood);
	setAttribute(part("cadence"), "title", `${task.cadenceReason}. ${task.cadenceWhy}`);
	updateRunning(part("bar"), part("progress"), task.running);
	const nextAt = Math.max(task.nextDueAt ?? 0, heldUntil ?? 0);
	setCountdown(part("next"), task.enabled && nextAt ? nextAt : null, "not scheduled");
	updateLast(part("last"), last);
}

const BADGES = { ok: "on time", partial: "not complete", disabled: "off" };

function badgeOf({ condition, problem, running }, heldUntil) {
	const mood = problem ? "bad" : condition === "ok" ? "live" : "warn";
	if (running) return ["running", mood];
	if (condition === "ok" && heldUntil) return ["held back", "warn"];
	return [BADGES[condition] ?? condition, mood];
}

/** "every 5 min", "20 min instead of 5 min", "73 s instead of 60 s". */
function cadenceOf({ cadenceMs, effectiveCadenceMs }, stretched) {
	if (!stretched) return `every ${span(cadenceMs)}`;
	const words = span(cadenceMs) === span(effectiveCadenceMs) ? (ms) => `${count(Math.round(ms / 1000))} s` : span;
	return `${words(effectiveCadenceMs)} instead of ${words(cadenceMs)}`;
}

/** What went wrong and when it runs next, or why it is held back; why it is slower. */
function whyOf(task, heldUntil, stretched) {
	const reasons = [];
	if (task.condition === "ok" && heldUntil) reasons.push(`Held back until ${clock(heldUntil)}`);
	if (task.condition !== "ok") reasons.push(task.sentence);
	else if (task.lastError) reasons.push(`${task.lastError.class}: ${task.lastError.message}`);
	if (stretched) reasons.push(`Cadence ${task.cadenceReason}`);
	return reasons.join(" · ");
}

function updateRunning(bar, text, running) {
	if (running && !running.total) bar.removeAttribute("value");
	else Object.assign(bar, { max: running?.total ?? 1, value: running?.done ?? 0 });
	const steps = running?.total ? `${count(running.done)} of ${count(running.total)}, ` : "";
	setText(text, running ? `${steps}for ${duration(Math.max(0, now() - running.startedAt))}` : "idle");
}

function updateLast(node, last) {
	if (!last) return setText(node, NONE);
	if (!node.firstElementChild) node.replaceChildren(el("time"), el("span"));
	setAge(node.firstElementChild, last.endedAt);
	setText(node.lastChild, `, ${last.outcome} in ${duration(last.durationMs)}`);
	return setAttribute(node, "data-outcome", last.outcome);
}
