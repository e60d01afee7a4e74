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

-- name: tiers
-- The tiers of all registered wallets.
SELECT stx_address, tier FROM agent_tiers;

-- name: tiers_of
-- What keeps the swaps of these wallets from counting, if anything. A wallet without a row is not registered.
SELECT stx_address, tier FROM agent_tiers WHERE stx_address IN (SELECT value FROM json_each(?));

-- name: recorded_blocks
-- The blocks of recorded swaps.
SELECT txid, block_hash FROM swaps WHERE txid IN (SELECT value FROM json_each(?));

-- name: refused_blocks
-- The blocks and codes of refused transactions.
SELECT txid, block_hash, code FROM refusals WHERE txid IN (SELECT value FROM json_each(?));

-- name: recorded_of_contract
-- The recorded swaps of a contract in a stretch of the chain.
SELECT txid FROM swaps WHERE contract_id = ? AND (block_height, tx_index) > (?, ?) AND (block_height, tx_index) < (?, ?);

-- name: recorded_of_wallet
-- The recorded swaps of a wallet in a stretch of the chain.
SELECT txid FROM swaps WHERE sender = ? AND (block_height, tx_index) > (?, ?) AND (block_height, tx_index) < (?, ?);

-- name: recorded_of_all
-- All recorded swaps in a stretch of the chain.
SELECT txid FROM swaps WHERE (block_height, tx_index) > (?, ?) AND (block_height, tx_index) < (?, ?);

-- name: keep_source
-- Keep the first reporter of swaps that are recorded again.
INSERT INTO candidates (txid, source, added_at, due_at)
SELECT txid, source, 0, 0 FROM swaps WHERE txid IN (SELECT value FROM json_each(?))
ON CONFLICT (txid) DO NOTHING;

-- name: remove_moved
-- Remove swaps that are in another block now.
DELETE FROM swaps
WHERE txid IN (SELECT json_extract(value, '$.txid') FROM json_each(?1))
  AND txid || block_hash NOT IN
    (SELECT json_extract(value, '$.txid') || json_extract(value, '$.block_hash') FROM json_each(?1));

-- name: insert_swaps
-- Record swaps of registered senders. Returns the new ones.
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_time, block_height, block_hash, tx_index, source, provider, raw_event_json,
  allowlist_version, recorded_at)
SELECT json_extract(s.value, '$.txid'), a.stx_address, json_extract(s.value, '$.contract_id'),
  json_extract(s.value, '$.function_name'), json_extract(s.value, '$.token_in'),
  json_extract(s.value, '$.amount_in'), json_extract(s.value, '$.token_out'),
  json_extract(s.value, '$.amount_out'), json_extract(s.value, '$.burn_block_time'),
  json_extract(s.value, '$.block_time'),
  json_extract(s.value, '$.block_height'), json_extract(s.value, '$.block_hash'),
  json_extract(s.value, '$.tx_index'), coalesce(c.source, json_extract(s.value, '$.source')),
  json_extract(s.value, '$.provider'), json_extract(s.value, '$.raw_event_json'),
  json_extract(s.value, '$.allowlist_version'), ?
FROM json_each(?) s
JOIN agents a ON a.stx_address = json_extract(s.value, '$.sender')
LEFT JOIN candidates c ON c.txid = json_extract(s.value, '$.txid')
WHERE true
ON CONFLICT (txid) DO NOTHING
RETURNING txid;

-- name: refuse
-- Store refusals, or replace those of the same transactions.
INSERT INTO refusals (txid, code, reason, sender, contract_id, function_name, burn_block_time, block_height,
  block_hash, legs_json, source, allowlist_version, refused_at)
SELECT json_extract(r.value, '$.txid'), json_extract(r.value, '$.code'), json_extract(r.value, '$.reason'),
  json_extract(r.value, '$.sender'), json_extract(r.value, '$.contract_id'),
  json_extract(r.value, '$.function_name'), json_extract(r.value, '$.burn_block_time'),
  json_extract(r.value, '$.block_height'), json_extract(r.value, '$.block_hash'),
  json_extract(r.value, '$.legs_json'), json_extract(r.value, '$.source'),
  json_extract(r.value, '$.allowlist_version'), ?
FROM json_each(?) r
WHERE true
ON CONFLICT (txid) DO UPDATE SET code = excluded.code, reason = excluded.reason,
  burn_block_time = excluded.burn_block_time, block_height = excluded.block_height,
  block_hash = excluded.block_hash, legs_json = excluded.legs_json,
  allowlist_version = excluded.allowlist_version, refused_at = excluded.refused_at;

-- name: enqueue
-- Queue candidates. A repeated push changes nothing.
INSERT INTO candidates (txid, source, added_at, due_at, attempts, rank, block_height)
SELECT json_extract(c.value, '$[0]'), coalesce(s.source, json_extract(c.value, '$[1]')), ?1, ?1,
  json_extract(c.value, '$[2]'), json_extract(c.value, '$[3]'), json_extract(c.value, '$[4]')
FROM json_each(?2) c
LEFT JOIN swaps s ON s.txid = json_extract(c.value, '$[0]')
WHERE true
ON CONFLICT (txid) DO UPDATE SET due_at = min(due_at, excluded.due_at),
  added_at = max(added_at, excluded.added_at), rank = min(rank, excluded.rank),
  block_height = coalesce(excluded.block_height, block_height)
WHERE excluded.rank < 2;

-- name: forget_candidates
-- Remove transactions from the queue.
DELETE FROM candidates WHERE txid IN (SELECT value FROM json_each(?));

-- name: forget_refusals
-- Remove refusals.
DELETE FROM refusals WHERE txid IN (SELECT value FROM json_each(?));

-- name: forget_swaps
-- Remove swaps.
DELETE FROM swaps WHERE txid IN (SELECT value FROM json_each(?));

-- name: postpone
-- Count attempts at candidates, and verify them later.
UPDATE candidates SET attempts = attempts + ?, due_at = ? WHERE txid IN (SELECT value FROM json_each(?));

-- name: not_mined
-- Candidates are in no block.
UPDATE candidates SET block_height = NULL WHERE txid IN (SELECT value FROM json_each(?));

-- name: due_candidates
-- Candidates of a rank that are due, then those stored while the clock was ahead.
SELECT * FROM (SELECT txid, source, attempts, added_at, rank FROM candidates
  WHERE rank = ?1 AND due_at <= ?2 ORDER BY due_at, txid LIMIT ?3)
UNION ALL
SELECT * FROM (SELECT txid, source, attempts, added_at, rank FROM candidates
  WHERE rank = ?1 AND due_at > ?4 ORDER BY due_at, txid LIMIT ?3)
LIMIT ?3;

-- name: queued
-- Which of these are candidates.
SELECT txid FROM candidates WHERE txid IN (SELECT value FROM json_each(?));

-- name: count_candidates
-- How many candidates of a rank there are.
SELECT count(*) AS n FROM candidates WHERE rank = ?;

-- name: count_swaps
-- How many swaps are recorded, from totals: one row per agent, however many swaps there are.
SELECT coalesce(sum(trades), 0) AS swaps FROM sender_totals;

-- name: queue_size
-- How many candidates there are, and since when the oldest waits.
SELECT count(*) AS length, min(added_at) AS oldest_at FROM candidates;

-- name: swaps_outside
-- Swaps outside a period.
SELECT * FROM swaps WHERE burn_block_time < ? OR burn_block_time >= ? LIMIT ?;

-- name: recorded_calls
-- The functions that recorded swaps call.
SELECT DISTINCT contract_id, function_name FROM swaps;

-- name: swaps_of_call
-- Swaps of one function.
SELECT * FROM swaps WHERE contract_id = ? AND function_name = ? LIMIT ?;

-- name: refusals_of_eligible_senders
-- Refusals whose senders have become eligible.
SELECT r.* FROM refusals r JOIN agent_tiers t ON t.stx_address = r.sender
WHERE r.code IN ('sender_not_registered', 'sender_not_genesis') AND t.tier = 'eligible';

-- name: refusals_by_rules
-- Refusals that other rules may reopen.
SELECT * FROM refusals WHERE code IN ('contract_not_allowlisted', 'before_comp_start', 'after_comp_end');

-- name: doubtful_refusals
-- Refusals since a time of transactions without any movement: an answer may have come too early.
SELECT txid, source FROM refusals
WHERE burn_block_time > ? AND code = 'incomplete_events' AND legs_json = '{}' LIMIT ?;

-- name: marks
-- How far all lists of contracts and wallets were read.
SELECT * FROM marks;

-- name: marks_of
-- How far these lists were read.
SELECT * FROM marks WHERE principal IN (SELECT value FROM json_each(?));

-- name: save_mark
-- Store how far a list was read.
INSERT INTO marks (principal, rules, position_json, looked_at, walked_at, tried_at, failures)
VALUES (?, ?, ?, ?, ?, ?, 0)
ON CONFLICT (principal) DO UPDATE SET rules = excluded.rules, position_json = excluded.position_json,
  looked_at = excluded.looked_at, walked_at = excluded.walked_at, tried_at = excluded.tried_at, failures = 0;

-- name: count_failure
-- Count failed visits of a list.
INSERT INTO marks (principal, rules, failures, tried_at) VALUES (?, ?, ?, ?)
ON CONFLICT (principal) DO UPDATE SET failures = failures + excluded.failures, tried_at = excluded.tried_at;

-- name: values
-- Single values that outlive a run.
SELECT key, value FROM competition_state WHERE key IN (SELECT value FROM json_each(?));

-- name: set_value
-- Store such a value.
INSERT INTO competition_state (key, value, updated_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at;

-- name: clear_value
-- Remove such a value.
DELETE FROM competition_state WHERE key = ?;

-- name: nonces_of
-- The nonces that were seen of these wallets.
SELECT wallet, ranges_json FROM nonces WHERE wallet IN (SELECT value FROM json_each(?));

-- name: save_nonces
-- Store the nonces that were seen, and how many are missing between them.
INSERT INTO nonces (wallet, ranges_json, missing, missing_above)
SELECT json_extract(n.value, '$[0]'), json_extract(n.value, '$[1]'), json_extract(n.value, '$[2]'),
  json_extract(n.value, '$[3]')
FROM json_each(?) n
WHERE true
ON CONFLICT (wallet) DO UPDATE SET ranges_json = excluded.ranges_json, missing = excluded.missing,
  missing_above = excluded.missing_above;

-- name: forget_nonces
-- After an unread stretch, nonces seen before it prove nothing.
DELETE FROM nonces;

-- name: wallets_with_missing_nonces
-- Eligible wallets with missing nonces. Those whose list keeps failing appear rarely.
SELECT n.wallet, n.missing FROM nonces n JOIN agent_tiers t ON t.stx_address = n.wallet AND t.tier = 'eligible'
LEFT JOIN marks m ON m.principal = n.wallet
WHERE n.missing > 0 AND (coalesce(m.failures, 0) < ? OR m.tried_at <= ?) ORDER BY n.missing_above LIMIT ?;

-- name: missing_nonces
-- How many nonces of eligible wallets are missing, and the block up to which none is, or NULL.
SELECT coalesce(sum(n.missing), 0) AS missing, min(n.missing_above) - 1 AS block
FROM nonces n JOIN agent_tiers t ON t.stx_address = n.wallet AND t.tier = 'eligible' WHERE n.missing > 0;

-- name: unverified
-- How many listed transactions wait to be verified, and their lowest block.
SELECT count(*) AS count, min(block_height) AS block FROM candidates c
WHERE block_height IS NOT NULL AND NOT EXISTS (SELECT 1 FROM swaps s WHERE s.txid = c.txid);

-- name: unread_wallets
-- How many eligible wallets have a list that was never read to its end.
SELECT count(*) AS n FROM agent_tiers t LEFT JOIN marks m ON m.principal = t.stx_address
WHERE t.tier = 'eligible' AND m.walked_at IS NULL;

-- name: save_funders
-- Store who sent wallets STX, if it is earlier than what is known.
INSERT INTO funders (wallet, funder, funder_nonce, block_height, tx_index, complete)
SELECT json_extract(f.value, '$[0]'), json_extract(f.value, '$[1]'), json_extract(f.value, '$[2]'),
  json_extract(f.value, '$[3]'), json_extract(f.value, '$[4]'), 0
FROM json_each(?) f
WHERE true
ON CONFLICT (wallet) DO UPDATE SET funder = excluded.funder, funder_nonce = excluded.funder_nonce,
  block_height = excluded.block_height, tx_index = excluded.tx_index
WHERE (excluded.block_height, excluded.tx_index) < (funders.block_height, funders.tx_index);

-- name: no_earlier_funder
-- The list of a wallet was read to its end: nobody was earlier than who is known.
INSERT INTO funders (wallet, block_height, tx_index, complete) VALUES (?, ?, ?, 1)
ON CONFLICT (wallet) DO UPDATE SET complete = 1 WHERE funders.complete = 0;

-- name: first_funders
-- The first funders of agents, where they are known for certain and have few transactions, so are not services.
SELECT f.wallet, f.funder FROM funders f JOIN agents a ON a.stx_address = f.wallet
WHERE f.wallet IN (SELECT value FROM json_each(?)) AND f.complete = 1 AND f.funder_nonce < ? AND f.funder IS NOT NULL;

-- name: price_figures
-- What the series of prices keeps about a token at a time.
json_array(p.price_usd, p.decimals, p.liquidity_usd, p.volume_usd)
FROM price_tokens t CROSS JOIN price_points p ON p.token = t.id

-- name: swaps_to_value
-- Swaps that are due to be valued, with the prices in force at their time and the first ones after it.
WITH due AS MATERIALIZED (
  SELECT due_at, txid FROM swaps_to_value WHERE due_at <= ? ORDER BY due_at, txid LIMIT ?
),
s AS MATERIALIZED (
  SELECT d.due_at, d.txid, s.block_hash, s.token_in, s.amount_in, s.token_out, s.amount_out,
    s.burn_block_time * 1000 AS at, ? AS stale_after, ? AS first_within
  FROM due d LEFT JOIN swaps s ON s.txid = d.txid
)
SELECT s.*,
  (SELECT {price_figures} WHERE t.token = s.token_in AND p.at <= s.at AND p.at >= s.at - s.stale_after
   ORDER BY p.at DESC LIMIT 1) AS in_before,
  (SELECT {price_figures} WHERE t.token = s.token_in AND p.price_usd IS NOT NULL
     AND p.at > s.at AND p.at <= s.at + s.first_within
   ORDER BY p.at LIMIT 1) AS in_after,
  (SELECT {price_figures} WHERE t.token = s.token_out AND p.at <= s.at AND p.at >= s.at - s.stale_after
   ORDER BY p.at DESC LIMIT 1) AS out_before,
  (SELECT {price_figures} WHERE t.token = s.token_out AND p.price_usd IS NOT NULL
     AND p.at > s.at AND p.at <= s.at + s.first_within
   ORDER BY p.at LIMIT 1) AS out_after
FROM s;

-- name: save_values
-- Store values, only for swaps as they were read: in between one may have been removed, or moved to another block.
INSERT INTO swap_values (txid, sender, given_micros, received_micros)
SELECT s.txid, s.sender, json_extract(v.value, '$[2]'), json_extract(v.value, '$[3]')
FROM json_each(?) v
JOIN swaps s ON s.txid = json_extract(v.value, '$[0]') AND s.block_hash = json_extract(v.value, '$[1]')
WHERE true
ON CONFLICT (txid) DO NOTHING;

-- name: save_excess
-- Store excessive swaps, in the same way.
INSERT INTO excess_swaps
SELECT s.txid, s.sender, s.token_in, s.amount_in, s.token_out, s.amount_out, s.burn_block_time,
  json_extract(v.value, '$[2].given_usd'), json_extract(v.value, '$[2].given_liquidity_usd'),
  json_extract(v.value, '$[2].received_usd'), json_extract(v.value, '$[2].received_liquidity_usd')
FROM json_each(?) v
JOIN swaps s ON s.txid = json_extract(v.value, '$[0]') AND s.block_hash = json_extract(v.value, '$[1]')
WHERE true
ON CONFLICT (txid) DO NOTHING;

-- name: valued
-- Remove swaps from the queue.
DELETE FROM swaps_to_value
WHERE (due_at, txid) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?));

-- name: value_later
-- Value swaps later.
INSERT INTO swaps_to_value (due_at, txid)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?) WHERE true
ON CONFLICT DO NOTHING;
