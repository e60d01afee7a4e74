/** Transactions that do not count, newest first; each opens with its reason. */

import { ageOf } from "./clock.js";
import { el } from "./dom.js";
import { count, moment, NONE, shortAddress } from "./format.js";
import { getJson } from "./request.js";
import { factsOf, selectOf } from "./table.js";
import { words } from "./task-words.js";
import { linkTo } from "./views.js";

const PATH = "/api/admin/competition/refusals";
const EXPLORER = "https://explorer.hiro.so/txid/";
const PAGE = 50;

export async function show(body, { query, session, go }) {
	const [code, sender] = [query.get("code") ?? "", query.get("sender") ?? ""];
	const { key, refusals } = session();
	const codes = [...new Set([...Object.keys(refusals ?? {}), ...(code ? [code] : [])])].sort();
	const labels = codes.map((one) => [one, `${words(one)}${refusals?.[one] ? ` (${count(refusals[one])} in 24 h)` : ""}`]);
	const wallet = el("input", { id: "sender", value: sender, placeholder: "SP…", spellcheck: "false", autocomplete: "off" });
	const form = el(
		"form",
		{ class: "filters", submit: (event) => (event.preventDefault(), go(linkTo("refusals", { sender: wallet.value.trim() }))) },
		selectOf("Reason", [["", "all reasons"], ...labels], code, (value) => go(linkTo("refusals", { code: value }))),
		el("label", { class: "filter" }, el("span", {}, "Wallet"), wallet),
		el("button", {}, "Search"),
	);
	const note = el("p", { class: "note", role: "status" }, "Asking.");
	const list = el("ul", { class: "opened" });
	const more = el("button", { type: "button", hidden: true }, "Older ones");
	body.replaceChildren(form, note, list, more);

	async function load(cursor) {
		more.disabled = true;
		const asked = Object.entries({ code, sender, cursor, limit: PAGE }).filter(([, value]) => value);
		try {
			/** @type {import("./types.js").RefusalPage} */
			const page = (await getJson(`${PATH}?${new URLSearchParams(asked)}`, { key })).body;
			list.append(...page.refusals.map(item));
			note.textContent = list.childElementCount ? `${count(list.childElementCount)} shown, newest first.` : "None.";
			more.hidden = page.next === null;
			more.onclick = () => load(page.next);
		} catch (error) {
			note.textContent = error.message;
		}
		more.disabled = false;
	}

	await load(null);
}

/** @param {import("./types.js").RecentRefusal} refusal */
function item(refusal) {
	const elsewhere = { rel: "noreferrer", target: "_blank" };
	const facts = factsOf([
		["Finding", refusal.reason],
		["Wallet", el("span", {}, el("code", {}, refusal.sender), " ", el("a", { href: linkTo("refusals", { sender: refusal.sender }) }, "all refusals of this wallet"))],
		["Called", refusal.contractId ? el("code", {}, `${refusal.contractId} ${refusal.functionName ?? ""}`) : NONE],
		["Block time", moment(refusal.burnBlockTime * 1000)],
		["Refused", moment(refusal.refusedAt)],
		["Transaction", el("code", {}, refusal.txid)],
	]);
	const links = el(
		"p",
		{ class: "trail" },
		el("a", { href: `/agents/${refusal.sender}` }, "Agent's page"),
		el("a", { href: `${EXPLORER}${refusal.txid}?chain=mainnet`, ...elsewhere }, "Transaction in the explorer"),
	);
	return el(
		"li",
		{},
		el(
			"details",
			{},
			el("summary", {}, el("b", {}, words(refusal.code)), " ", el("span", {}, shortAddress(refusal.sender)), " ", ageOf(refusal.refusedAt)),
			el("p", {}, refusal.sentence),
			facts,
			links,
		),
	);
}
