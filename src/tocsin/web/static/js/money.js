/** Money and token amounts as people read them. Pure. */

import { count, NONE } from "./format.js";

const DOLLARS = { style: "currency", currency: "USD" };
const USD = new Intl.NumberFormat("en-US", DOLLARS);
const USD_SHORT = new Intl.NumberFormat("en-US", { ...DOLLARS, notation: "compact", maximumSignificantDigits: 4 });

const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

const HUGE = 1e18; // a larger figure is a source's error; it must not break the layout

export function usd(value, shortFrom = 10_000_000) {
	if (value === null || value === undefined) return NONE;
	return `${value < 0 ? "−" : ""}${sizeOf(Math.abs(value), shortFrom)}`;
}

function sizeOf(size, shortFrom) {
	if (size >= HUGE) return ">$999,999T";
	if (size >= 1e15) return `$${count(Math.round(size / 1e12))}T`;
	return size >= shortFrom ? USD_SHORT.format(size) : USD.format(size);
}

/** With its sign: color alone must not mark a gain. */
export function signedUsd(value, shortFrom) {
	if (value === null || value === undefined) return NONE;
	return signed(value, usd(Math.abs(value), shortFrom), Math.abs(value) < 0.005);
}

export function signedPercent(value) {
	if (value === null || value === undefined) return NONE;
	const size = Math.abs(value);
	const text = size >= 1e15 ? ">999T" : size >= 100_000 ? SHORT.format(size) : size >= 1000 ? count(Math.round(size)) : size.toFixed(size >= 100 ? 1 : 2);
	return signed(value, `${text}%`, size < 0.005);
}

function signed(value, text, isZero) {
	if (isZero || text.startsWith(">")) return text;
	return value > 0 ? `+${text}` : `−${text}`;
}

/** An amount in base units (a BigInt) as an exact decimal; `places` cuts it for reading, toward zero. */
export function amount(units, decimals, places = 20) {
	const digits = (units < 0n ? -units : units).toString().padStart(decimals + 1, "0");
	const whole = digits.slice(0, digits.length - decimals).replace(/\B(?=(\d{3})+$)/g, ",");
	const fraction = digits.slice(digits.length - decimals).slice(0, places).replace(/0+$/, "");
	return (units < 0n ? "−" : "") + whole + (fraction ? `.${fraction}` : "");
}

/** The digits worth reading of an amount: six places below one, two above a thousand. */
export function shortAmount(units, decimals) {
	const whole = (units < 0n ? -units : units) / 10n ** BigInt(decimals);
	return amount(units, decimals, whole >= 1000n ? 2 : whole >= 1n ? 4 : 8);
}
