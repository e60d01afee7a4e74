/** The console's views apart from the overview. Each has an address, and its module is loaded on first use. */

import { byId, el, setAttribute, setText } from "./dom.js";

const VIEWS = {
	runs: ["Runs", () => import("./view-runs.js")],
	run: ["Run", () => import("./view-run.js")],
	days: ["Days", () => import("./view-days.js")],
	refusals: ["Refusals", () => import("./view-refusals.js")],
	prices: ["Prices", () => import("./view-prices.js")],
	rounds: ["Rounds", () => import("./view-rounds.js")],
	audit: ["Audit log", () => import("./view-audit.js")],
	demo: ["Break things", () => import("./view-demo.js")],
};
const PARENTS = { run: "runs", days: "runs" };

/** The address of a view: `?view=runs&task=sweep`; empty parameters are left out. Pure. */
export function linkTo(view, params = {}) {
	const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
	const query = new URLSearchParams([["view", view], ...given.map(([name, value]) => [name, String(value)])]);
	return view ? `?${query}` : location.pathname;
}

export class Views {
	title = "";
	#shown = null; // {name, refresh, closed}
	#session = () => null;

	/** `session()` is what the console knows, null while it is locked; `changed()` is called after each change of view. */
	constructor(session, changed) {
		this.#session = session;
		this.changed = changed;
		addEventListener("popstate", () => this.show());
		document.addEventListener("click", (event) => {
			const link = event.target.closest("#desk a[href]");
			const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey || event.button;
			if (!link || elsewhere || link.origin !== location.origin || link.pathname !== location.pathname || link.hash) return;
			event.preventDefault();
			this.go(link.href);
		});
	}

	get isOpen() {
		return this.#shown !== null;
	}

	go(address) {
		history.pushState(null, "", address);
		this.show();
	}

	/** Show what the address names. */
	async show({ focus = true } = {}) {
		const query = new URLSearchParams(location.search);
		const name = Object.hasOwn(VIEWS, query.get("view") ?? "") ? query.get("view") : null;
		this.close();
		setAttribute(byId("desk"), "data-view", name);
		byId("overview").hidden = name !== null;
		byId("view").hidden = name === null;
		const current = PARENTS[name] ?? name;
		for (const link of byId("views").querySelectorAll("a")) {
			const own = new URLSearchParams(link.search).get("view");
			setAttribute(link, "aria-current", own === current ? "page" : null);
		}
		this.title = name ? VIEWS[name][0] : "";
		if (name) await this.#open(name, query, focus);
		else if (focus) byId("verdict-title").focus();
		this.changed();
	}

	async #open(name, query, focus) {
		const [title, load] = VIEWS[name];
		const heading = el("h2", { id: "view-title", tabindex: -1 }, title);
		const body = el("div", { class: "view-body" });
		const shown = { name, closed: false, refresh: null };
		this.#shown = shown;
		byId("view").replaceChildren(heading, body);
		if (focus) heading.focus();
		const named = (text) => {
			setText(heading, text);
			this.title = text;
			this.changed();
		};
		try {
			const view = await load();
			if (shown.closed) return;
			shown.refresh = await view.show(body, { query, session: this.#session, named, go: (address) => this.go(address) });
		} catch (error) {
			if (!shown.closed) body.replaceChildren(el("p", { class: "note bad", role: "alert" }, `This view cannot be shown: ${error.message}`));
		}
	}

	/** The console has new data. */
	refresh(event) {
		this.#shown?.refresh?.(event);
	}

	close() {
		if (this.#shown) this.#shown.closed = true;
		this.#shown = null;
		byId("view").replaceChildren();
	}
}
