/** The leaderboard page: its data, its view, and drawing the data by the view. */

import { loadBoard } from "./board-feed.js";
import { arrange, COLUMNS } from "./board-order.js";
import { follow } from "./board-live.js";
import { drawState, drawSummary } from "./board-state.js";
import { drawRows } from "./board-table.js";
import { formatView, parseView } from "./board-view.js";
import { everySecond } from "./clock.js";
import { byId, el, setText } from "./dom.js";
import { count, dayAndTime } from "./format.js";
import { Poll } from "./poll.js";
import { drawPrices, loadPrices } from "./prices.js";
import { addTrade, drawTrades, loadTrades } from "./trade-strip.js";
import { drawRound } from "./round-line.js";

const POLL_MS = 30_000;
const NO_PRICES = {};

let view = parseView(location.search);
let board = null;
const boards = new Map(); // the known board of each period
let lookedAt = view.period;
let prices = null;
/** Whether the rows that came with the page are those of the view. */
let served = byId("rows").childElementCount > 0 && !formatView({ ...view, agent: null });
if (!served) byId("rows").replaceChildren();

const poll = new Poll(refresh, POLL_MS, draw);

async function refresh() {
	// The board does not wait for the prices; if they do not load, the old ones show their age.
	const asked = loadPrices(prices).catch(() => prices);
	const strip = loadTrades();
	drawRound();
	const { period } = view;
	const known = boards.get(period) ?? null;
	const fresh = await loadBoard(period, known, (partial) => {
		if (known === null || !known.complete) show(partial, period);
	});
	show(fresh, period);
	prices = await asked;
	await strip;
}

function show(next, period) {
	boards.set(period, next);
	if (period !== view.period) return; // the visitor has chosen another one
	board = next;
	draw();
}

function draw() {
	if (!served || board || poll.error) drawState({ board, prices: prices?.prices, poll });
	const unavailable = board === null && !served && poll.error !== null;
	document.body.dataset.phase = board || served ? "shown" : unavailable ? "failed" : "loading";
	byId("unavailable").hidden = !unavailable;
	if (board === null) return;
	const arranged = arrange(board.rows, view);
	drawSummary(board);
	drawRows(arranged.rows, view);
	drawPaging(arranged);
	drawPrices(prices?.prices);
	drawTrades(board.rows, prices?.prices ?? NO_PRICES);
	drawAgent();
}

let panel = null;
let loading = null;

/** The panel's code is loaded with the first agent; if that fails, the next round tries again. */
function drawAgent() {
	if (panel === null) {
		if (view.agent) loading ??= loadPanel();
		return;
	}
	const row = board.rows.find(({ wallets }) => wallets.includes(view.agent));
	if (view.agent) panel.showAgent(row?.wallets ?? [view.agent], row, prices?.prices ?? NO_PRICES, board.period);
	else panel.hideAgent();
}

const stylesheet = (href) => new Promise((load, error) => document.head.append(el("link", { rel: "stylesheet", href, load, error })));

async function loadPanel() {
	const parts = Promise.all([import("./agent-panel.js"), stylesheet("/static/agent-panel.css")]);
	panel = await parts.then(([module]) => module, () => null);
	loading = null;
	if (panel === null) return;
	panel.onClosed(() => view.agent && look({ agent: null }, { push: true }));
	drawAgent();
}

function drawPaging({ rows, found, page, pages }) {
	const all = board.rows.length;
	const more = board.complete ? "" : "+";
	const agents = view.q ? `${count(found)} of ${count(all)}${more} agents` : `${count(all)}${more} agents`;
	setText(byId("found"), board.since ? `${agents} · since ${dayAndTime(board.since)}` : agents);
	const reading = all === 0 && board.service?.state === "starting"; // nothing is known yet
	byId("nobody").hidden = all > 0 || reading;
	const [title, text] = nothingOf(board);
	setText(byId("nobody-title"), title);
	setText(byId("nobody-text"), text);
	byId("no-match").hidden = all === 0 || found > 0;
	byId("reading").hidden = !reading;
	byId("board").hidden = found === 0;
	byId("paging").hidden = pages === 1;
	if (rows.length) setText(byId("page"), `Page ${count(page)} of ${count(pages)}`);
	byId("previous").disabled = page === 1;
	byId("next").disabled = page === pages;
	view.page = page;
}

const NOTHING = ["No trades yet", "Swaps of registered agents appear here as soon as they are verified on chain."];

/** Why there are no rows. */
function nothingOf({ period, round, since }) {
	if (period === "round" && !round) return ["No round yet", "Its board appears here when the first one begins."];
	if (period === "round") return ["No trades in this round yet", NOTHING[1]];
	return period && period !== "all" && !since ? ["Not known yet", "The figures for this period appear within an hour."] : NOTHING;
}

/** Change the view. With `push`, the Back button undoes it. */
function look(change, { push = false } = {}) {
	view = { ...view, ...change };
	lookAtPeriod();
	const address = location.pathname + formatView(view);
	if (push) history.pushState(null, "", address);
	else history.replaceState(null, "", address);
	draw();
}

/** Show the known board of the period, then ask the service. */
function lookAtPeriod() {
	for (const choice of periods) choice.checked = choice.value === view.period;
	if (view.period === lookedAt) return;
	lookedAt = view.period;
	served = false;
	board = boards.get(view.period) ?? null;
	poll.again();
}

const periods = document.querySelectorAll("[name=period]");
for (const choice of periods) choice.addEventListener("change", () => look({ period: choice.value, page: 1 }, { push: true }));

for (const button of document.querySelectorAll("#board thead button")) {
	button.addEventListener("click", () => {
		const { sort } = button.dataset;
		const turned = view.dir === "asc" ? "desc" : "asc";
		look({ sort, dir: sort === view.sort ? turned : COLUMNS[sort].dir, page: 1 }, { push: true });
	});
}

byId("search").value = view.q;
byId("search").addEventListener("input", (event) => look({ q: event.target.value, page: 1 }));
byId("clear").addEventListener("click", () => {
	byId("search").value = "";
	look({ q: "", page: 1 });
	byId("search").focus();
});
document.addEventListener("keydown", (event) => {
	const typing = event.target.closest("input, select, textarea, dialog[open]");
	if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
	event.preventDefault();
	byId("search").focus();
});

function turn(step) {
	look({ page: view.page + step }, { push: true });
	byId("board-top").scrollIntoView({ block: "start" });
}
byId("previous").addEventListener("click", () => turn(-1));
byId("next").addEventListener("click", () => turn(1));

byId("rows").addEventListener("click", (event) => {
	const link = event.target.closest("tr")?.querySelector("a[data-agent]");
	if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
	event.preventDefault();
	link.focus();
	look({ agent: link.dataset.agent }, { push: true });
	if (panel === null) poll.now(); // if its code cannot be loaded, this shows why
});
byId("retry").addEventListener("click", () => poll.now());

addEventListener("popstate", () => {
	view = parseView(location.search);
	byId("search").value = view.q;
	lookAtPeriod();
	draw();
});

byId("more-rules").addEventListener("toggle", async (event) => {
	if (event.target.open) (await import("./board-rules.js")).drawRules();
});

lookAtPeriod();
everySecond(() => board && drawState({ board, prices: prices?.prices, poll }));
draw();
poll.now();
follow({
	changed: () => poll.again(),
	counted: (trade) => {
		addTrade(trade);
		draw();
	},
});
