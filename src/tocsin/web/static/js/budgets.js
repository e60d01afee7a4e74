/** Budgets as gauges. */

import { byId, el, keyed, setAttribute, setText } from "./dom.js";
import { clock, count, day, utcDay } from "./format.js";

/** How much of the month has passed, from 0 to 1. Pure. */
export function passedOf(endsAt, at) {
	const startsAt = new Date(endsAt).setUTCMonth(new Date(endsAt).getUTCMonth() - 1);
	return Math.min(1, Math.max(0, (at - startsAt) / (endsAt - startsAt)));
}

/** How the month ends, as the service forecasts it. Pure. @param {import("./types.js").BudgetStatus} budget */
export function forecastWords({ forecast, monthEndsAt }) {
	const ends = utcDay(monthEndsAt);
	if (!forecast) return "The forecast needs an hour of calls.";
	if (forecast.runsOutAt) return `At this rate the budget runs out on ${day(forecast.runsOutAt)}: cadences are stretched to last until ${ends}.`;
	return `At this rate ${count(forecast.usedAtEnd)} by ${ends} (${count(forecast.perDay)} a day).`;
}

/** What tasks may still use, and what is kept back. Pure. @param {import("./types.js").BudgetStatus} budget */
export function leftWords({ left }) {
	if (left.forTasks == null) return "";
	return `Tasks may still use ${count(left.forTasks)}; ${count(left.month - left.forTasks)} are kept for requests. `;
}

/** @param {Record<string, import("./types.js").BudgetStatus>} budgets */
export function drawBudgets(budgets, at) {
	keyed(byId("budgets"), Object.keys(budgets), (name) => name, makeBudget, (node, name) => updateBudget(node, budgets[name], at));
}

/** What other programs have asked for since the start. @param {Record<string, import("./types.js").LookupUse>} lookups */
export function drawLookups(lookups) {
	byId("lookups").hidden = Object.keys(lookups).length === 0;
	setText(byId("lookups"), Object.entries(lookups).map(lookupWords).join(" "));
}

function lookupWords([key, { lookups, hits, calls, stale, refused, failed }]) {
	const rest = Object.entries({ stale, refused, failed }).filter(([, n]) => n).map(([word, n]) => `, ${count(n)} ${word}`);
	return `${key}: ${count(lookups)} look-ups, ${count(hits)} from memory, ${count(calls)} calls${rest.join("")}.`;
}

function makeBudget(name) {
	const gauge = { class: "gauge", role: "meter", "aria-label": `Calls to ${name} this month`, "aria-valuemin": "0" };
	const note = () => el("p", { class: "note" });
	return el("li", {}, el("h3", {}, name, el("small")), el("div", gauge, el("i"), el("b"), el("u")), note(), note());
}

function updateBudget(node, budget, at) {
	const [title, gauge, month, minute] = node.children;
	const [used, limit] = [budget.spent.month, budget.limits.month];
	const atEnd = budget.forecast?.usedAtEnd ?? used;
	const runsOutAt = budget.forecast?.runsOutAt;
	const share = (value) => `${Math.min(100, (value / (limit ?? Math.max(1, atEnd))) * 100)}%`;
	const [bar, ahead, today] = gauge.children;
	bar.style.width = share(used);
	ahead.style.width = share(atEnd);
	today.style.left = `${passedOf(budget.monthEndsAt, at) * 100}%`;
	setAttribute(gauge, "data-mood", runsOutAt || budget.closedUntil ? "warn" : "live");
	setAttribute(gauge, "aria-valuemax", String(limit ?? atEnd));
	setAttribute(gauge, "aria-valuenow", String(used));
	const others = budget.spent.monthByOthers ? `, ${count(budget.spent.monthByOthers)} by others` : "";
	setText(title.lastChild, `${count(used)}${limit === null ? "" : ` of ${count(limit)}`} calls${others}`);
	setText(month, `${leftWords(budget)}${forecastWords(budget)}`);
	setAttribute(month, "data-mood", runsOutAt ? "warn" : null);
	setText(minute, minuteWords(budget));
	setAttribute(minute, "data-mood", budget.closedUntil ? "warn" : null);
}

function minuteWords(budget) {
	if (budget.closedUntil) return `Closed until ${clock(budget.closedUntil)} after a 429.`;
	const { minute } = budget.limits;
	const waiting = Object.values(budget.waiting).reduce((sum, n) => sum + n, 0);
	const parts = [`${count(budget.spent.minute)}${minute === null ? "" : ` of ${count(minute)}`} in the last minute`];
	if (waiting) parts.push(`${count(waiting)} waiting`);
	if (budget.reported.anonymous) parts.push("counted as an anonymous caller");
	return `${parts.join(", ")}.`;
}
