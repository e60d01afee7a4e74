/** Counts, times and names as people read them. Pure. */

const DOLLARS = { style: "currency", currency: "USD" };
const WHOLE = new Intl.NumberFormat("en-US");
const USD = new Intl.NumberFormat("en-US", DOLLARS);
const USD_SMALL = new Intl.NumberFormat("en-US", { ...DOLLARS, maximumSignificantDigits: 4 });

export const NONE = "–";
export const count = (n) => ((n ?? null) === null ? NONE : WHOLE.format(n));

const isTime = (at) => at !== null && Math.abs(at) <= 8.64e15; // the range of a Date
export const time = (options) => {
	const format = new Intl.DateTimeFormat("en-US", { hourCycle: "h23", ...options });
	return (at) => (isTime(at) ? format.format(at) : NONE);
};
export const DATE = { day: "numeric", month: "short" };
export const TIME = { hour: "2-digit", minute: "2-digit" };
export const clock = time(TIME);
export const clockSeconds = time({ ...TIME, second: "2-digit" });
export const day = time(DATE);
export const utcDay = time({ ...DATE, timeZone: "UTC" });
export const dayAndTime = time({ ...DATE, ...TIME });
export const moment = time({ dateStyle: "medium", timeStyle: "medium" });
export const isoTime = (at) => (isTime(at) ? new Date(at).toISOString() : null);

/** A price of any size, with its significant digits. */
export function price(value) {
	if ((value ?? null) === null) return NONE;
	return value !== 0 && Math.abs(value) < 1 ? USD_SMALL.format(value) : USD.format(value);
}

/** "4 min ago"; none for a time more than a day ahead. */
export function ago(ms) {
	if (ms < -86_400_000) return NONE;
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

/** A length of time in two units: "1 d 15 h", "15 h 20 min", "4 min". */
export function left(ms) {
	const minutes = Math.floor(Math.max(0, ms) / 60_000);
	if (minutes >= 1440) return `${Math.floor(minutes / 1440)} d ${Math.floor(minutes / 60) % 24} h`;
	return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes} min`;
}

export function shortAddress(address) {
	return address.length > 14 ? `${address.slice(0, 6)}…${address.slice(-5)}` : address;
}
