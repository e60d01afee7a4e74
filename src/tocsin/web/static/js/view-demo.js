/** Only in a demo: break the simulated upstreams, the chain or the service itself, and watch how it copes. */

import { el } from "./dom.js";
import { getJson, post } from "./request.js";

const FAULTS = [
	["Hiro answers 429", "fault", { kind: "limited", upstream: "hiro", retry_after: 20 }, "It asks us to wait 20 seconds, again and again."],
	["Hiro is down", "fault", { kind: "status", upstream: "hiro", status: 503 }, "Every call gets a 503."],
	["Hiro is slow", "fault", { kind: "delay", upstream: "hiro", seconds: 2 }, "Every answer takes two seconds."],
	["Hiro hangs", "fault", { kind: "hang", upstream: "hiro" }, "No answer comes at all."],
	["Tenero answers 429", "fault", { kind: "limited", upstream: "tenero", retry_after: 20 }, "It asks us to wait 20 seconds, again and again."],
	["Tenero is down", "fault", { kind: "status", upstream: "tenero", status: 503 }, "Every call gets a 503."],
	["Tenero sends nonsense", "fault", { kind: "wrong_types", upstream: "tenero" }, "Its answers have values of the wrong type."],
	["Hiro's plan shrinks", "limits", { upstream: "hiro", keyed: { month: 30000 } }, "A fifth of the calls is left: tasks run less often."],
	["The chain forks", "reorg", { depth: 3, fate: "mixed" }, "Three blocks are replaced: swaps move, wait or vanish."],
];
const KINDS = { limited: "answers 429", status: "is down", delay: "is slow", hang: "hangs", wrong_types: "sends nonsense" };

export async function show(body, { session }) {
	const { key, simulator, caller } = session();
	if (!simulator) throw new Error("this is not a demo.");
	const now = el("p", { class: "summary", role: "status" });
	const said = el("p", { class: "note", role: "status" });
	const viewer = caller?.role === "viewer";
	const heal = el("button", { type: "button", class: "primary", disabled: viewer, click: () => act("calm", {}, "Repaired.") }, "Repair everything");
	const kill = el("button", { type: "button", disabled: viewer, click: () => act("kill", {}, "Crashed. It restarts on its own.") }, "Crash the service");

	const card = ([name, command, values, meaning]) =>
		el("li", {}, el("button", { type: "button", disabled: viewer, click: () => act(command, values, `${name}.`) }, name), el("small", {}, meaning));
	body.replaceChildren(
		el("p", { class: "note" }, "Nothing here is real: both upstreams are simulated. Break something, then watch the overview and the runs."),
		now,
		el("ul", { class: "faults" }, ...FAULTS.map(card), el("li", {}, kill, el("small", {}, "Its process is replaced without any clean-up, as kill -9 and a restart would do. A run under way is recorded as interrupted, and runs again."))),
		heal,
		said,
	);

	function tell({ faults, badTimes, otherPlans }) {
		const words = faults.map(({ kind, upstream }) => `${upstream ?? "everything"} ${KINDS[kind] ?? kind}`);
		words.push(...otherPlans.map((upstream) => `${upstream} has a smaller plan`));
		if (badTimes) words.push("bad times are on: something fails every minute");
		now.textContent = words.length ? `Broken now: ${[...new Set(words)].join("; ")}.` : "Nothing is broken.";
	}

	async function act(command, values, done) {
		said.textContent = "";
		try {
			await post(`${simulator}/_control/${command}`, { key, json: values });
			said.textContent = done;
			await load();
		} catch (error) {
			said.textContent = command === "kill" && error.status === 0 ? done : error.message;
		}
	}

	const load = async () => tell((await getJson(`${simulator}/_control`, { key })).body);
	await load();
	return (event) => !event && load().catch(() => {});
}
