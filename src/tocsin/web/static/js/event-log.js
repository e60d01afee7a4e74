/** Events as they happen, newest first. */

import { byId, el } from "./dom.js";
import { clockSeconds, isoTime, moment } from "./format.js";
import { eventWords } from "./task-words.js";

const SHOWN_MAX = 200;
const list = byId("events");
let newest = null;

/** @param {import("./types.js").SchedulerEvent} event */
export function logEvent(event) {
	byId("no-events").hidden = true;
	if (newest && replaces(event, newest)) list.firstElementChild.remove();
	newest = event;
	const { title, text, mood } = eventWords(event);
	const at = el("time", { datetime: isoTime(event.at), title: moment(event.at) }, clockSeconds(event.at));
	list.prepend(el("li", { "data-mood": mood }, at, el("code", {}, title), el("span", {}, text)));
	while (list.childElementCount > SHOWN_MAX) list.lastElementChild.remove();
}

/** Progress of one run takes one line, and so does an alarm that is set again. */
function replaces(event, previous) {
	if (event.event !== previous.event) return false;
	return event.event === "alarm.armed" || (event.event === "run.progressed" && event.run === previous.run);
}

export function clearLog() {
	list.replaceChildren();
	newest = null;
}
