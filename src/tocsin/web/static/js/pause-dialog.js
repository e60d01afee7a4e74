/** Asks how long to pause, and explains what a pause does. */

import { now } from "./clock.js";
import { el, setText } from "./dom.js";
import { clock, day, span } from "./format.js";

const CHOICES_MS = [15, 60, 240, 1440].map((minutes) => minutes * 60_000);
const MEANING =
	"No scheduled run starts until then. A run under way ends at its next checkpoint. Refreshing by hand still works.";
const choices = el("div", { class: "choices" });
const custom = el("input", { id: "pause-until", type: "datetime-local", "aria-label": "Pause until", hidden: true });
const note = el("p", { id: "pause-note", class: "note bad", role: "alert" });
const yes = el("button", { id: "pause-yes", class: "primary", value: "pause" }, "Pause");
const dialog = el(
	"dialog",
	{ id: "pause", "aria-labelledby": "pause-title" },
	el(
		"form",
		{ method: "dialog" },
		el("h2", { id: "pause-title" }, "Pause scheduled runs"),
		el("p", { class: "note" }, MEANING),
		el("fieldset", {}, el("legend", { class: "sr" }, "For how long"), choices, custom),
		note,
		el("div", { class: "actions" }, el("button", { value: "" }, "Cancel"), yes),
	),
);
document.body.append(dialog);
let maxMs = Infinity;

/** Returns the end (unix ms), or null if it was not confirmed. */
export function askForPause(longestMs) {
	maxMs = longestMs;
	const allowed = CHOICES_MS.filter((ms) => ms <= longestMs);
	choices.replaceChildren(...allowed.map((ms) => option(String(ms), span(ms))), option("custom", "until…"));
	choices.querySelectorAll("input")[Math.min(1, allowed.length - 1)].checked = true;
	custom.value = localTime(now() + 2 * 3_600_000);
	tell();
	dialog.returnValue = "";
	dialog.showModal();
	return new Promise((resolve) => {
		dialog.addEventListener("close", () => resolve(dialog.returnValue === "pause" ? until() : null), { once: true });
	});
}

const option = (value, label) => el("label", {}, el("input", { type: "radio", name: "for", value }), label);

function until() {
	const { value } = choices.querySelector("input:checked");
	return value === "custom" ? new Date(custom.value).getTime() : now() + Number(value);
}

function tell() {
	const at = until();
	const isCustom = choices.querySelector("input:checked").value === "custom";
	const fits = at > now() && at - now() <= maxMs;
	custom.hidden = !isCustom;
	yes.disabled = !fits;
	const when = at - now() > 12 * 3_600_000 ? `${day(at)}, ${clock(at)}` : clock(at);
	setText(yes, fits ? `Pause until ${when}` : "Pause");
	setText(note, fits ? "" : `Choose a time in the future, at most ${span(maxMs)} from now.`);
}

/** In the format of an input of type datetime-local. */
function localTime(at) {
	return new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

dialog.addEventListener("input", tell);
