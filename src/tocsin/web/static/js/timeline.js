/** A day of runs as a chart: position is time, height is duration, color is outcome. Also the refusals. */

import { byId, el, keyed, setAttribute, setText, svg } from "./dom.js";
import { clock, count, moment, span } from "./format.js";
import { completeWords, duration, taskTitle, words } from "./task-words.js";
import { linkTo } from "./views.js";

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const WINDOW_MIN_MS = 30 * MINUTE_MS;
const STEPS_MS = [5, 15, 60, 240].map((minutes) => minutes * MINUTE_MS);
const TABLE_MAX = 20; // per task: one of them runs every minute

/**
 * The last day, or as far back as there are records.
 * @param {Record<string, import("./types.js").TaskStatus>} tasks
 * @param {import("./types.js").RunRecord[]} runs
 */
export function drawTimeline(tasks, runs, at) {
	const oldest = runs.at(-1)?.startedAt ?? at;
	const from = Math.max(at - DAY_MS, Math.min(oldest, at - WINDOW_MIN_MS));
	const shown = runs.filter((run) => (run.endedAt ?? at) >= from);
	keyed(byId("lanes"), Object.keys(tasks), (name) => name, makeLane, (lane, name) => {
		updateLane(lane, name, shown.filter((run) => run.task === name), from, at);
	});
	drawAxis(from, at);
	setText(byId("timeline-title"), `Runs of the last ${span(at - from)}`);
	const newest = Object.keys(tasks).flatMap((name) => shown.filter((run) => run.task === name).slice(0, TABLE_MAX));
	drawTable(newest.sort((a, b) => b.id - a.id));
}

const makeLane = (name) => el("li", {}, el("span", {}, taskTitle(name)), svg("svg", { class: "lane", role: "img" }), el("small"));

function updateLane(lane, name, runs, from, at) {
	const [, picture, note] = lane.children;
	const lasted = (run) => Math.max(1, run.durationMs ?? at - run.startedAt);
	const longest = Math.max(1, ...runs.map(lasted));
	const ended = (...outcomes) => count(runs.filter((run) => outcomes.includes(run.outcome)).length);
	const summary = `${count(runs.length)} runs, ${ended("failed", "interrupted")} failed, ${ended("partial", "limited")} not complete, the longest took ${duration(longest)}`;
	setAttribute(picture, "aria-label", `${taskTitle(name)}: ${summary}`);
	setText(note, runs.length ? `${count(runs.length)}, up to ${duration(longest)}` : "no runs");
	const percent = (ms) => `${((ms / (at - from)) * 100).toFixed(3)}%`;
	keyed(picture, runs, (run) => run.id, () => svg("rect", { rx: 1 }), (bar, run) => {
		const height = 18 + 82 * Math.sqrt(lasted(run) / longest);
		setAttribute(bar, "x", percent(Math.max(0, run.startedAt - from)));
		setAttribute(bar, "y", `${100 - height}%`);
		setAttribute(bar, "height", `${height}%`);
		setAttribute(bar, "data-outcome", run.outcome);
		bar.style.width = `max(2px, ${percent(lasted(run))})`;
		bar.dataset.words = runWords(run);
	});
}

function drawAxis(from, at) {
	const step = STEPS_MS.find((ms) => (at - from) / ms <= 8) ?? STEPS_MS.at(-1);
	const zone = new Date(at).getTimezoneOffset() * MINUTE_MS;
	const marks = [];
	for (let mark = Math.ceil((from - zone) / step) * step + zone; mark <= at; mark += step) marks.push(mark);
	keyed(byId("axis"), marks, (mark) => mark, (mark) => el("span", {}, clock(mark)), (node, mark) => {
		node.style.left = `${((mark - from) / (at - from)) * 100}%`;
	});
}

const cells = (run) =>
	[moment(run.startedAt), taskTitle(run.task), run.trigger, run.outcome, duration(run.durationMs), run.error?.message ?? run.reason ?? ""];
const runWords = (run) => `${cells(run).filter(Boolean).join(" · ")} · run ${run.id}`;

/** The same data as text. */
function drawTable(runs) {
	const make = (run) => el("tr", {}, el("td", {}, el("a", { href: linkTo("run", { run: run.id }) }, String(run.id))), ...cells(run).map(() => el("td")));
	keyed(byId("runs"), runs, (run) => run.id, make, (row, run) => {
		cells(run).forEach((text, index) => setText(row.children[index + 1], text));
		setAttribute(row, "data-outcome", run.outcome);
	});
}

byId("lanes").addEventListener("pointerover", (event) => {
	if (event.target.dataset.words) setText(byId("pointed"), event.target.dataset.words);
});

/** Why swaps were refused, most frequent first; null if unknown. @param {Record<string, number> | null} refusals */
export function drawRefusals(refusals) {
	const counts = Object.entries(refusals ?? {});
	const make = ([reason]) => el("li", {}, el("a", { href: linkTo("refusals", { code: reason }) }, words(reason)), el("b", { class: "num" }), el("i"));
	keyed(byId("refusals"), counts, ([reason]) => reason, make, (node, [, n]) => {
		setText(node.children[1], count(n));
		node.children[2].style.width = `${(n / counts[0][1]) * 100}%`;
	});
	byId("no-refusals").hidden = counts.length > 0;
	setText(byId("no-refusals"), refusals ? "None." : "Not known: the database does not answer.");
}

/** The block up to which the record is proven complete. @param {import("./types.js").Completeness | undefined} complete */
export function drawComplete(complete) {
	setText(byId("complete"), completeWords(complete));
}

/** The contract's list that has waited longest. @param {Record<string, number | null> | null} lists */
export function drawLists(lists, at) {
	const all = Object.entries(lists ?? {});
	const [oldest, readAt] = all[0] ?? [];
	const age = readAt ? `was read ${span(at - readAt)} ago` : "was never read completely";
	setText(byId("lists"), oldest ? `The oldest of ${count(all.length)} contracts' lists ${age}: ${oldest}` : "");
}
