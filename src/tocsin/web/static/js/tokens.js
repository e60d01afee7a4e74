/** Tokens by their symbols, each with a small badge. */

import { el } from "./dom.js";
import { hashOf } from "./identicon.js";

/** By contract, so that no other token can pass for one of them. */
const SYMBOLS = {
	stx: "STX",
	"SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token": "sBTC",
	"SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token": "stSTX",
	"SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx": "USDCx",
	"SP3Y2ZSH8P7D50B0VBTSX11S7XSG24M1VB9YFQA4K.token-aeusdc": "aeUSDC",
	"SP3K8BC0PPEVCV7NZ6QSRWPQ2JE9E5B6N3PA0KBR9.token-susdt": "sUSDT",
	"SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token": "USDA",
	"SP102V8P0F7JX67ARQ77WEA3D3CFB5XW39REDT0AM.token-alex": "ALEX",
	"SP3NE50GEXFG9SZGTT51P40X2CKYSZ5CC4ZTZ7A2G.welshcorgicoin-token": "WELSH",
	"SP1AY6K3PQV5MRT6R4S671NWW2FRVPKM0BR162CT6.leo-token": "LEO",
	"SP1Y5YSTAHZ88XYK1VPDH24GY0HPX5J4JECTMY4A1.velar-token": "VELAR",
	"SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.arkadiko-token": "DIKO",
};

/** Its symbol, or else its asset's name, followed by its contract's if it looks like a symbol. */
export function tokenName(id) {
	const [contract, asset] = id.split("::");
	if (Object.hasOwn(SYMBOLS, contract)) return SYMBOLS[contract];
	const name = asset ?? contract.split(".")[1] ?? id;
	const isTaken = Object.values(SYMBOLS).some((symbol) => symbol.toLowerCase() === name.toLowerCase());
	return isTaken ? id.slice(id.indexOf(".") + 1) : name;
}

/** With its badge: always the same letter and color for a token. Decoration. */
export function tokenLabel(id) {
	const name = tokenName(id);
	const letter = name.match(/[A-Z]/)?.[0] ?? [...name][0]?.toUpperCase() ?? "";
	const badge = el("i", { class: "coin", "data-letter": letter, "aria-hidden": "true" });
	badge.style.setProperty("--hue", String((hashOf(id) >>> 8) % 360));
	return el("bdi", { class: "token", title: id }, badge, name);
}
