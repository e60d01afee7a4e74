/** The sums of an agent's trades by token and by day. Exact: amounts are BigInt. Pure. */

const DAY_MS = 86_400_000;

/**
 * `{tokens, uncounted}`: per token the amounts given and received over all trades, and the net at today's price over
 * the trades that count. A trade counts when both its tokens have a price (one priced side alone would
 * look like a gain or a loss) and it was not worth more than a pool can pay.
 * @param {import("./types.js").Trade[]} trades
 * @param {Record<string, import("./types.js").Price>} prices
 */
export function tokenFlows(trades, prices) {
	const flows = new Map();
	let uncounted = 0;
	const flow = (token) => {
		if (!flows.has(token)) flows.set(token, { token, given: 0n, received: 0n, counted: 0n, trades: 0 });
		return flows.get(token);
	};
	for (const trade of trades) {
		const [gave, got] = [BigInt(trade.amount_in), BigInt(trade.amount_out)];
		const counts = !trade.excess && isPriced(prices[trade.token_in]) && isPriced(prices[trade.token_out]);
		const [from, to] = [flow(trade.token_in), flow(trade.token_out)];
		from.given += gave;
		to.received += got;
		from.trades += 1;
		if (to !== from) to.trades += 1;
		if (counts) {
			from.counted -= gave;
			to.counted += got;
		} else uncounted += 1;
	}
	const tokens = [...flows.values()].map((one) => ({ ...one, ...valued(one, prices[one.token]) }));
	tokens.sort((a, b) => Math.abs(b.netUsd ?? 0) - Math.abs(a.netUsd ?? 0) || b.trades - a.trades);
	return { tokens, uncounted };
}

const isPriced = (price) => price !== undefined && price.priceUsd !== null && price.decimals !== null;

function valued(flow, price) {
	const decimals = price?.decimals ?? null;
	if (!isPriced(price)) return { decimals, priceUsd: null, netUsd: null };
	return { decimals, priceUsd: price.priceUsd, netUsd: (Number(flow.counted) / 10 ** decimals) * price.priceUsd };
}

/** Trades per day, oldest first, the last one being today. @param {import("./types.js").Trade[]} trades */
export function activity(trades, now, days = 30) {
	const today = Math.floor(now / DAY_MS);
	const counts = Array.from({ length: days }, (_, index) => ({ at: (today - days + 1 + index) * DAY_MS, count: 0 }));
	for (const trade of trades) {
		const place = Math.floor((trade.burn_block_time * 1000) / DAY_MS) - (today - days + 1);
		if (place >= 0 && place < days) counts[place].count += 1;
	}
	return counts;
}
