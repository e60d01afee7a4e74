-- name: swap_columns
-- A recorded swap, with its figures if it is excessive.
*, (SELECT json_object('txid', txid, 'given_usd', given_usd, 'given_liquidity_usd', given_liquidity_usd,
    'received_usd', received_usd, 'received_liquidity_usd', received_liquidity_usd)
  FROM excess_swaps e WHERE e.txid = swaps.txid) AS excess_json

-- name: swap
-- A recorded swap.
SELECT {swap_columns} FROM swaps WHERE txid = ?;

-- name: trades_of_sender
-- A wallet's swaps before a position, newest first.
SELECT {swap_columns} FROM swaps WHERE sender = ? AND (burn_block_time, txid) < (?, ?)
ORDER BY burn_block_time DESC, txid DESC LIMIT ?;

-- name: newest_trades
-- Everybody's swaps before a position, newest first.
SELECT {swap_columns} FROM swaps WHERE (block_height, tx_index) < (?, ?)
ORDER BY block_height DESC, tx_index DESC LIMIT ?;

-- name: trade_counts
-- An agent's counts; no row for a wallet that is not registered.
SELECT a.erc8004_agent_id AS agent_id, t.trades, t.first_trade_at, t.last_trade_at
FROM agents a LEFT JOIN sender_totals t ON t.sender = a.stx_address WHERE a.stx_address = ?;

-- name: refusal
-- A refused transaction.
SELECT * FROM refusals WHERE txid = ?;

-- name: refused_since
-- How many transactions were refused, by code. Without the hint, SQLite would read all in the order of their codes.
SELECT code, count(*) AS n FROM refusals INDEXED BY refusals_by_time
WHERE refused_at >= ? GROUP BY code ORDER BY n DESC, code;

-- name: newest_refusals
-- Refusals before a position, newest first. This query and the next two use one index each.
SELECT * FROM refusals INDEXED BY refusals_by_time
WHERE (refused_at, txid) < (?, ?) ORDER BY refused_at DESC, txid DESC LIMIT ?;

-- name: refusals_of_code
-- Refusals of one code before a position, newest first. There are few of each code, so the index by time serves.
SELECT * FROM refusals INDEXED BY refusals_by_time
WHERE code = ? AND (refused_at, txid) < (?, ?) ORDER BY refused_at DESC, txid DESC LIMIT ?;

-- name: refusals_of_sender
-- Refusals of one sender before a position, newest first.
SELECT * FROM refusals INDEXED BY refusals_by_sender
WHERE sender = ? AND (refused_at, txid) < (?, ?) ORDER BY refused_at DESC, txid DESC LIMIT ?;
