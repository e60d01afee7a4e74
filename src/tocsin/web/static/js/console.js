/** The console: one session, opened by a key and closed with the tab. */

import { drawBudgets, drawLookups } from "./budgets.js";
import { everySecond, heard, now } from "./clock.js";
import { remaining, setCountdown } from "./countdown.js";
import { byId, setAttribute, setText } from "./dom.js";
import { clearLog, logEvent } from "./event-log.js";
import { EventStream } from "./event-stream.js";
import { clock, clockSeconds, NONE, span } from "./format.js";
import { Poll } from "./poll.js";
import { drawPrices, loadPrices } from "./prices.js";
import { getJson, post } from "./request.js";
import { drawTasks } from "./task-cards.js";
import { learnTitles, moodOf, refreshWords } from "./task-words.js";
import { drawComplete, drawLists, drawRefusals, drawTimeline } from "./timeline.js";
import { verdictOf } from "./verdict.js";
import { linkTo, Views } from "./views.js";

const API = "/api/admin/scheduler";
const KEPT_AS = "tocsin:admin-key"; // in sessionStorage
const POLL_MS = 15_000;
const RUNS_MAX = 500; // about six hours
const SOON_MS = 200; // one request for a burst of events

let session = null; // what is known while a key is in use
const views = new Views(() => session, () => session && draw());

// Opening and closing

async function open(key) {
	byId("gate-note").textContent = "";
	byId("enter").disabled = true;
	try {
		const { body } = await getJson(API, { key });
		sessionStorage.setItem(KEPT_AS, key);
		begin(key, body);
	} catch (error) {
		if (error.status === 401) sessionStorage.removeItem(KEPT_AS);
		close(error.status === 401 ? "This key is wrong: enter a key of ADMIN_KEY or TOCSIN_VIEWER_KEY." : error.message);
	}
	byId("enter").disabled = false;
}

/** @param {import("./types.js").SchedulerOverview} overview */
function begin(key, overview) {
	heard(overview.status.now);
	learnTitles(overview.status);
	session = { key, ...overview, runs: [], runsStale: true, prices: null };
	session.poll = new Poll(refresh, POLL_MS, draw);
	session.stream = new EventStream(key, { received, changed: refreshSoon, refused: (error) => lock(error.message) });
	session.poll.now();
	byId("gate").hidden = true;
	byId("desk").hidden = false;
	byId("key").value = "";
	views.show();
	allow(overview.caller?.role !== "viewer");
}

function lock(reason) {
	sessionStorage.removeItem(KEPT_AS);
	close(reason);
}

function close(reason) {
	session?.poll.stop();
	session?.stream.stop();
	session = null;
	clearLog();
	views.close();
	byId("gate").hidden = false;
	byId("desk").hidden = true;
	byId("gate-note").textContent = reason;
	document.title = "Console · Tocsin";
	byId("key").focus();
}

// Reading

async function refresh() {
	const mine = session;
	try {
		const asked = loadPrices(mine.prices).catch(() => mine.prices);
		const { body } = await getJson(API, { key: mine.key });
		heard(body.status.now);
		learnTitles(body.status);
		Object.assign(mine, body);
		if (mine.runsStale) {
			mine.runsStale = false;
			mine.runs = (await getJson(`${API}/runs?limit=${RUNS_MAX}`, { key: mine.key })).body.runs;
		}
		mine.prices = await asked;
		if (session === mine) views.refresh();
	} catch (error) {
		mine.runsStale = true;
		if (error.status === 401 && session === mine) lock(error.message);
		throw error;
	}
}

let pending = null;

function refreshSoon() {
	pending ??= setTimeout(() => {
		pending = null;
		session?.poll.again();
	}, SOON_MS);
}

/** @param {import("./types.js").SchedulerEvent} event */
function received(event) {
	logEvent(event);
	views.refresh(event);
	const running = session.status.tasks[event.task]?.running;
	if (event.event === "run.progressed" && running?.run === event.run) {
		Object.assign(running, { done: event.done, total: event.total });
		draw();
		return;
	}
	if (event.event.startsWith("run.")) session.runsStale = true;
	refreshSoon();
}

// Drawing

function draw() {
	if (session === null) return;
	const { status, refusals, lists, complete, runs, prices, caller } = session;
	const at = now();
	drawVerdict(at);
	byId("demo-link").hidden = !session.simulator;
	if (views.isOpen) return;
	drawTasks(status, runs, refreshTask);
	drawTimeline(status.tasks, runs, at);
	drawRefusals(refusals);
	drawLists(lists, at);
	drawComplete(complete);
	drawBudgets(status.budgets, at);
	drawLookups(status.lookups);
	drawPrices(prices?.prices);
	byId("resume").hidden = !status.pausedUntil;
	byId("pause-open").hidden = Boolean(status.pausedUntil);
	setText(byId("caller"), caller ? `${caller.name}, ${caller.role === "viewer" ? "read-only" : caller.role}` : NONE);
	if (caller?.role === "viewer") allow(false);
}

/** A viewer may only read. */
function allow(acting) {
	for (const node of document.querySelectorAll("[data-refresh], #refresh-all, #pause-open, #resume, #reason")) node.disabled = !acting;
}

function drawVerdict(at) {
	const { status, poll, stream } = session;
	const { mood, title, text } = poll.error ? lost(poll) : verdictOf(session, at);
	setAttribute(byId("verdict"), "data-mood", mood);
	setText(byId("verdict-title"), title);
	setText(byId("verdict-text"), text);
	setAttribute(byId("desk"), "data-lost", poll.error ? "" : null);
	byId("reconnect").hidden = !poll.error && !stream.retryAt;
	setText(byId("link"), stream.connected ? "live" : stream.retryAt ? "disconnected" : "connecting");
	setAttribute(byId("link"), "data-sign", stream.retryAt ? "loss" : null);
	setCountdown(byId("next-alarm"), poll.error ? null : status.nextAlarmAt, NONE);
	setText(byId("alarm-at"), status.nextAlarmAt === null ? "none armed" : `at ${clockSeconds(status.nextAlarmAt)}`);
	document.title = `${views.title ? `${views.title} · ` : ""}${title} · Console · Tocsin`;
}

function lost(poll) {
	const next = remaining(poll.nextAt - Date.now());
	const text = `${poll.error.message} You see the state of ${clockSeconds(poll.failingSince)}. Next try in ${next}.`;
	return { mood: "bad", title: "Disconnected", text };
}

// Acting

/** Send it, and show the result. */
async function act(button, query, doing, done, output = byId("message")) {
	const { key, poll } = session;
	const say = (text, mood = null) => {
		setText(output, `${clockSeconds(Date.now())} ${text}`);
		setAttribute(output, "data-mood", mood);
	};
	const reason = byId("reason");
	button.disabled = true;
	say(doing);
	try {
		say(...done(await post(`${API}?${new URLSearchParams({ ...query, reason: reason.value })}`, { key })));
		reason.value = "";
	} catch (error) {
		say(`Failed: ${error.message}`, "bad");
		if (error.status === 401) lock(error.message);
	}
	button.disabled = false;
	if (session) poll.again();
}

const outcomes = (results) => [
	results.map(([name, result]) => refreshWords(name, result)).join(" "),
	["bad", "warn", "live"].find((mood) => results.some(([, result]) => moodOf(result.run.outcome) === mood)),
];

function refreshTask(name) {
	const [button, output] = ["refresh", "message"].map((part) => document.querySelector(`[data-${part}="${name}"]`));
	act(button, { action: "refresh", task: name }, "Requested a run.", ({ result }) => outcomes([[name, result]]), output);
}

function refreshAll() {
	const query = { action: "refresh", task: "all" };
	act(byId("refresh-all"), query, "Requested a run of every task.", ({ result }) => outcomes(Object.entries(result)));
}

async function pause() {
	const dialog = await import("./pause-dialog.js").catch(() => null);
	if (dialog === null) return setText(byId("message"), "Nothing was changed: the service cannot be reached.");
	const until = await dialog.askForPause(session.status.pauseMaxMs);
	if (until === null) return;
	act(byId("pause-open"), { action: "pause", until: Math.round(until) }, "Pausing.", ({ pausedUntil }) => [
		`Paused until ${clock(pausedUntil)}, for ${span(pausedUntil - now())}. Refreshing by hand still works.`,
		"warn",
	]);
}

function resume() {
	act(byId("resume"), { action: "resume" }, "Resuming.", () => ["Resumed: scheduled runs continue.", "live"]);
}

function reconnect() {
	session.stream.retry();
	session.poll.now();
}

const BUTTONS = {
	"refresh-all": refreshAll,
	"pause-open": pause,
	resume,
	reconnect,
	lock: () => lock("Locked. The key was deleted."),
};
for (const [id, pressed] of Object.entries(BUTTONS)) byId(id).addEventListener("click", pressed);
byId("gate").addEventListener("submit", (event) => {
	event.preventDefault();
	open(byId("key").value.trim());
});
byId("lanes").addEventListener("click", (event) => {
	const bar = event.target.closest("rect");
	if (bar) views.go(linkTo("run", { run: bar.dataset.key }));
});
everySecond(() => {
	if (!session) return;
	drawVerdict(now());
	if (!views.isOpen) drawTasks(session.status, session.runs, refreshTask);
});

const kept = sessionStorage.getItem(KEPT_AS);
if (kept) open(kept);
else byId("key").focus();
