/** The leaderboard page: what is known, what is looked at, and drawing the one through the other. */

import { keepBoard, recallBoard } from "./board-cache.js";
import { loadBoard } from "./board-feed.js";
import { arrange, COLUMNS } from "./board-order.js";
import { follow } from "./board-live.js";
import { drawState, drawSummary } from "./board-state.js";
import { drawRows } from "./board-table.js";
import { formatView, parseView } from "./board-view.js";
import { everySecond } from "./clock.js";
import { byId, setText } from "./dom.js";
import { count } from "./format.js";
import { Poll } from "./poll.js";
import { drawPrices, loadPrices } from "./prices.js";
import { addTrade, drawTrades, loadTrades } from "./trade-strip.js";
import { drawRound } from "./round-line.js";

const POLL_MS = 30_000;
const NO_PRICES = {};

let view = parseView(location.search);
let board = recallBoard();
let prices = null;
const remembered = board !== null;

const poll = new Poll(refresh, POLL_MS, draw);

async function refresh() {
	// The board does not wait for the prices; without news of them the old ones show their age.
	const asked = loadPrices(prices).catch(() => prices);
	const strip = loadTrades();
	drawRound();
	const fresh = await loadBoard(board, (partial) => {
		if (board === null || !board.complete) show(partial);
	});
	if (fresh.pages.some((page, index) => page !== board?.pages[index])) keepBoard(fresh);
	show(fresh);
	prices = await asked;
	await strip;
}

function show(next) {
	board = next;
	draw();
}

function draw() {
	drawState({ board, prices: prices?.prices, poll, remembered });
	const unavailable = board === null && poll.error !== null;
	document.body.dataset.phase = board ? "shown" : unavailable ? "failed" : "loading";
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

/** The panel's code comes with the first look at an agent; when it cannot be had, the next round tries again. */
function drawAgent() {
	if (panel === null) {
		if (view.agent) loading ??= loadPanel();
		return;
	}
	const row = board.rows.find(({ wallets }) => wallets.includes(view.agent));
	if (view.agent) panel.showAgent(row?.wallets ?? [view.agent], row, prices?.prices ?? NO_PRICES);
	else panel.hideAgent();
}

async function loadPanel() {
	panel = await import("./agent-panel.js").catch(() => null);
	loading = null;
	if (panel === null) return;
	panel.onClosed(() => view.agent && look({ agent: null }, { push: true }));
	drawAgent();
}

function drawPaging({ rows, found, page, pages }) {
	const all = board.rows.length;
	const more = board.complete ? "" : "+";
	setText(byId("found"), view.q ? `${count(found)} of ${count(all)}${more} agents` : `${count(all)}${more} agents`);
	const reading = all === 0 && board.service?.state === "starting"; // nothing is known yet
	byId("nobody").hidden = all > 0 || reading;
	byId("no-match").hidden = all === 0 || found > 0;
	byId("reading").hidden = !reading;
	byId("board").hidden = found === 0;
	byId("paging").hidden = pages === 1;
	if (rows.length) setText(byId("page"), `Page ${count(page)} of ${count(pages)}`);
	byId("previous").disabled = page === 1;
	byId("next").disabled = page === pages;
	view.page = page;
}

/** Look at something else. A step (`push`) can be taken back with the Back button. */
function look(change, { push = false } = {}) {
	view = { ...view, ...change };
	const address = location.pathname + formatView(view);
	if (push) history.pushState(null, "", address);
	else history.replaceState(null, "", address);
	draw();
}

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
	draw();
});

everySecond(() => drawState({ board, prices: prices?.prices, poll, remembered }));
draw();
poll.now();
follow({
	changed: () => poll.again(),
	counted: (trade) => {
		addTrade(trade);
		draw();
	},
});
