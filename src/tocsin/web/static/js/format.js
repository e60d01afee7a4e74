/** Counts, times and names as people read them. Pure. */

const DOLLARS = { style: "currency", currency: "USD" };
const WHOLE = new Intl.NumberFormat("en-US");
const USD = new Intl.NumberFormat("en-US", DOLLARS);
const USD_SMALL = new Intl.NumberFormat("en-US", { ...DOLLARS, maximumSignificantDigits: 4 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const CLOCK_SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const MOMENT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

const AT_MAX = 8.64e15; // the last instant that a Date can hold
const AHEAD_MAX_MS = 86_400_000; // clocks differ by less

export const NONE = "–";
const isTime = (at) => typeof at === "number" && Math.abs(at) <= AT_MAX;
const shown = (format) => (at) => (isTime(at) ? format.format(at) : NONE);
export const count = (n) => (n === null || n === undefined ? NONE : WHOLE.format(n));
export const clock = shown(CLOCK);
export const clockSeconds = shown(CLOCK_SECONDS);
export const day = shown(DAY);
export const moment = shown(MOMENT);
/** For a `datetime` attribute; null where there is no such time. */
export const isoTime = (at) => (isTime(at) ? new Date(at).toISOString() : null);

/** A price of any size keeps its meaningful digits. */
export function price(value) {
	if (value === null || value === undefined) return NONE;
	return value !== 0 && Math.abs(value) < 1 ? USD_SMALL.format(value) : USD.format(value);
}

/** "4 min ago". What lies far ahead, or is no number, has no age. */
export function ago(ms) {
	if (!(ms >= -AHEAD_MAX_MS)) return NONE;
	return ms < 45_000 ? "just now" : `${span(ms)} ago`;
}

/** A length of time in its largest unit. */
export function span(ms) {
	const seconds = Math.max(0, Math.round(ms / 1000));
	if (seconds < 60) return `${seconds} s`;
	const minutes = Math.round(seconds / 60);
	if (minutes < 60) return `${minutes} min`;
	const hours = Math.floor(minutes / 60);
	return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}

/** How long a run took. */
export function duration(ms) {
	if (ms === null || ms === undefined) return NONE;
	if (ms < 1000) return `${ms} ms`;
	return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : span(ms);
}

/** A countdown: 4:07, or 2:04:07. */
export function remaining(ms) {
	const seconds = Math.max(0, Math.ceil(ms / 1000));
	const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
	const shown = parts[0] ? parts : parts.slice(1);
	return shown.map((part, index) => (index ? String(part).padStart(2, "0") : String(part))).join(":");
}

export function shortAddress(address) {
	return address.length > 14 ? `${address.slice(0, 6)}…${address.slice(-5)}` : address;
}

/** A token's asset name; its contract distinguishes it from others of that name. */
export function tokenName(id) {
	if (id === "stx") return "STX";
	return id.split("::")[1] ?? id.split(".")[1] ?? id;
}

/** `rejectionReasons` and `sender_not_registered` as words. */
export function words(name) {
	return name
		.replace(/_/g, " ")
		.replace(/([a-z])([A-Z])/g, "$1 $2")
		.toLowerCase();
}
