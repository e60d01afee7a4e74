/** How to take part: loaded when somebody opens it. */

import { byId, el } from "./dom.js";

/** The section "Take part" of /llms.txt, which is made from the rules in force. If it cannot be loaded, it is tried again. */
export async function drawRules() {
	const text = await fetch("/llms.txt").then((response) => (response.ok ? response.text() : ""), () => "");
	const steps = stepsOf(text);
	const none = () => el("p", { class: "note" }, "The rules cannot be shown now; see /llms.txt.");
	byId("rules").replaceChildren(steps.length ? el("ol", { class: "steps" }, ...steps.map((step) => el("li", {}, step))) : none());
}

/** Pure. */
export const stepsOf = (text) => [...text.matchAll(/^\d+\. (.+)$/gm)].map(([, step]) => step);
