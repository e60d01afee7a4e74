/** Token prices: loading them, how fresh they are, and the list of them with their ages. */

import { ageOf, setAge } from "./clock.js";
import { byId, el, keyed, setAttribute, setText } from "./dom.js";
import { price, shortAddress } from "./format.js";
import { getJson } from "./request.js";
import { tokenLabel } from "./tokens.js";

/** Every tracked token's price: `{prices, etag}`, of a `PriceList`. */
export async function loadPrices(previous) {
	const answer = await getJson("/api/prices", { etag: previous?.etag });
	if (answer.body === null) return previous;
	const none = { priceUsd: null, decimals: null, fetchedAt: null, stale: false, source: "tenero" };
	const missing = Object.fromEntries(answer.body.missing.map((id) => [id, none]));
	return { prices: { ...missing, ...answer.body.prices }, etag: answer.etag };
}

/** How fresh the prices are; pegs do not age. @param {Record<string, import("./types.js").Price>} [prices] */
export function freshness(prices) {
	const aging = Object.values(prices ?? {}).filter((one) => one.source !== "peg" && one.priceUsd !== null);
	const stale = aging.filter((one) => one.stale);
	const oldestAt = aging.length ? Math.min(...aging.map((one) => one.fetchedAt)) : null;
	return { priced: aging.length, stale: stale.length, oldestAt, mostlyStale: stale.length * 2 > aging.length };
}

/** @param {Record<string, import("./types.js").Price>} [prices] */
export function drawPrices(prices) {
	const entries = Object.entries(prices ?? {}).sort(([, a], [, b]) => worry(b) - worry(a) || a.fetchedAt - b.fetchedAt);
	keyed(byId("prices"), entries, ([id]) => id, makePrice, updatePrice);
	byId("no-prices").hidden = entries.length > 0;
}

const STATES = ["peg", "fresh", "stale", "none"];
const worry = (known) => STATES.indexOf(stateOf(known));

function stateOf(known) {
	if (known.priceUsd === null) return "none";
	if (known.source === "peg") return "peg";
	return known.stale ? "stale" : "fresh";
}

function makePrice([id]) {
	const contract = id.includes(".") ? shortAddress(id.split(".")[0]) : "native";
	return el(
		"li",
		{},
		el("span", {}, tokenLabel(id), el("small", {}, contract)),
		el("span", { class: "num" }),
		el("small"),
	);
}

function updatePrice(node, [, known]) {
	const [, value, age] = node.children;
	const state = stateOf(known);
	setAttribute(node, "data-state", state);
	setText(value, price(known.priceUsd));
	if (state === "none") setText(age, "no price");
	else if (state === "peg") setText(age, "pegged to the dollar");
	else {
		if (!age.firstElementChild) age.replaceChildren(ageOf(known.fetchedAt), el("span"));
		setAge(age.firstElementChild, known.fetchedAt);
		setText(age.lastChild, state === "stale" ? " · stale" : "");
	}
}
