-- name: agent
-- An agent's names and tier.
SELECT a.display_name, a.bns_name, a.erc8004_agent_id, t.tier
FROM agents a JOIN agent_tiers t ON t.stx_address = a.stx_address WHERE a.stx_address = ?;

-- name: agents
-- The eligible agents that traded, with the sums of their swaps at the prices of their time. A swap counts at the time
-- of its Bitcoin block; the newest one is shown at that of its Stacks block.
SELECT a.stx_address, a.btc_address, a.display_name, a.bns_name, a.erc8004_agent_id, t.trades,
  (SELECT max(coalesce(s.block_time, s.burn_block_time)) FROM swaps s
    WHERE s.sender = t.sender AND s.burn_block_time = t.last_trade_at) AS last_trade_at,
  v.valued, v.given_micros, v.received_micros
FROM sender_totals t
JOIN agents a ON a.stx_address = t.sender
JOIN agent_tiers e ON e.stx_address = t.sender
LEFT JOIN sender_values v ON v.sender = t.sender
WHERE e.tier = 'eligible';

-- name: price
-- A part: the prices of a query's first value. The CAST gives the column a type, without which SQLite would scan all
-- tokens instead of looking them up.
price AS MATERIALIZED (
  SELECT CAST(json_extract(value, '$[0]') AS TEXT) AS token, json_extract(value, '$[1]') AS usd
  FROM json_each(?1)
)

-- name: values_of_wallets
-- What each wallet gave and received, at given prices.
WITH {price}
SELECT t.sender,
  sum((t.in_0 + t.in_1 * 1e10 + t.in_2 * 1e20 + t.in_3 * 1e30) * i.usd) AS given_usd,
  sum((t.out_0 + t.out_1 * 1e10 + t.out_2 * 1e20 + t.out_3 * 1e30) * o.usd) AS received_usd
FROM pair_totals t
JOIN price i ON i.token = t.token_in
JOIN price o ON o.token = t.token_out
GROUP BY t.sender;

-- name: excess_trades
-- How many excessive swaps each wallet made.
SELECT sender, count(*) AS trades FROM excess_swaps GROUP BY sender;

-- name: other_tokens
-- The traded tokens that are not in a list.
SELECT token FROM token_totals WHERE token NOT IN (SELECT value FROM json_each(?));

-- name: trades_with
-- How often each wallet traded a pair with any of these tokens.
SELECT sender, token_in, token_out, trades FROM pair_totals
WHERE token_in IN (SELECT value FROM json_each(?1)) OR token_out IN (SELECT value FROM json_each(?1));

-- name: swaps_after
-- A wallet's swaps after a position in the chain, without excessive ones.
SELECT block_height, tx_index, txid, token_in, amount_in, token_out, amount_out FROM swaps
WHERE sender = ? AND (block_height, tx_index, txid) > (?, ?, ?) AND txid NOT IN (SELECT txid FROM excess_swaps)
ORDER BY block_height, tx_index, txid LIMIT ?;

-- name: outlays
-- The outlays of all agents.
SELECT agent_id, wallets, left_out, peaks, is_complete FROM outlays;

-- name: outlays_due
-- The wallets whose swaps have changed since their outlays were computed.
SELECT sender, changes, block_height, tx_index FROM outlays_due;

-- name: outlays_of
-- The outlays of some agents, with the position up to which their swaps were read.
SELECT * FROM outlays WHERE agent_id IN (SELECT value FROM json_each(?));

-- name: save_outlays
-- Save an agent's outlays, unless another run wrote first.
INSERT INTO outlays VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (agent_id) DO UPDATE SET wallets = excluded.wallets, left_out = excluded.left_out,
  peaks = excluded.peaks, net = excluded.net, block_height = excluded.block_height, tx_index = excluded.tx_index,
  txid = excluded.txid, is_complete = excluded.is_complete, version = excluded.version
WHERE outlays.version = excluded.version - 1;

-- name: outlays_done
-- Mark changes as processed, unless something changed in the meantime or another run wrote first.
DELETE FROM outlays_due WHERE sender = ? AND changes = ?
  AND EXISTS (SELECT 1 FROM outlays WHERE agent_id = ? AND version = ? AND net = ?);

-- name: forget_outlays_due
-- Drop the changes of wallets without stored outlays. The others stay, so that the outlays of an agent that does not
-- take part now are computed again when it does.
DELETE FROM outlays_due WHERE sender IN (SELECT value FROM json_each(?))
  AND NOT EXISTS (
    SELECT 1 FROM outlays o WHERE instr(' ' || o.wallets || ' ', ' ' || outlays_due.sender || ' ') > 0);

-- name: append_points
-- Append a point to each agent's day. An hour that already has one stays as it is.
INSERT INTO agent_days (day, agent_id, last_hour, last_point, points)
SELECT ?, json_extract(p.value, '$[0]'), ?, json_extract(p.value, '$[1]'), json_extract(p.value, '$[1]')
FROM json_each(?) p WHERE true
ON CONFLICT (day, agent_id) DO UPDATE SET
  points = points || ',' || excluded.last_point, last_point = excluded.last_point, last_hour = excluded.last_hour
WHERE last_hour < excluded.last_hour;

-- name: points_of_agent
-- An agent's points of a list of days: each is found by the primary key, which begins with the day so that a run writes
-- few pages.
SELECT d.day, d.points FROM json_each(?) asked
CROSS JOIN agent_days d ON d.day = asked.value AND d.agent_id = ?
ORDER BY d.day;

-- name: first_day
-- The oldest day with points.
SELECT min(day) AS day FROM agent_days;

-- name: thin_out_days
-- Keep only the last point of each agent's day.
UPDATE agent_days SET points = last_point
WHERE (day, agent_id) IN (
  SELECT day, agent_id FROM agent_days WHERE day >= ? AND day < ? AND points <> last_point LIMIT ?);

-- name: first_price
-- The time of the oldest price.
SELECT min(first) AS first
FROM (SELECT (SELECT min(at) FROM price_points WHERE token = id) AS first FROM price_tokens);

-- name: thin_out_prices
-- Keep only the last price of each token in an hour.
DELETE FROM price_points WHERE (token, at) IN (
  SELECT p.token, p.at FROM price_tokens t
  CROSS JOIN price_points p ON p.token = t.id AND p.at >= ? AND p.at < ?
  WHERE EXISTS (SELECT 1 FROM price_points n WHERE n.token = p.token AND n.at > p.at
    AND n.at < (p.at / 3600000 + 1) * 3600000)
  LIMIT ?);

-- name: newest_news
-- The number of the newest change.
SELECT max(id) AS id FROM news;

-- name: news_after
-- Changes after a number. A swap that was withdrawn since, or a refusal that was reopened, no longer has a row.
SELECT n.id, n.kind, n.txid AS news_txid, n.sender AS news_sender, s.*,
  r.code AS refusal_code, r.reason AS refusal_reason
FROM news n LEFT JOIN swaps s ON s.txid = n.txid LEFT JOIN refusals r ON r.txid = n.txid
WHERE n.id > ? ORDER BY n.id LIMIT ?;

-- name: trim_news
-- Delete all but the newest changes.
DELETE FROM news WHERE id <= (SELECT max(id) FROM news) - ?;

-- name: points_of_day
-- All agents' points of a day.
SELECT agent_id, points FROM agent_days WHERE day = ?;

-- name: trades_since
-- What each wallet traded since each of several times. A swap has a value if both sides have one.
WITH counted AS MATERIALIZED (SELECT value AS token FROM json_each(?2))
SELECT since.key AS number, s.sender, count(*) AS trades, count(v.txid) AS valued,
  coalesce(sum(v.given_micros), 0) AS given, coalesce(sum(v.received_micros), 0) AS received,
  sum(s.token_in NOT IN counted OR s.token_out NOT IN counted OR s.txid IN (SELECT txid FROM excess_swaps)) AS uncounted
FROM json_each(?1) since
CROSS JOIN swaps s ON s.burn_block_time >= since.value
LEFT JOIN swap_values v ON v.txid = s.txid AND v.given_micros IS NOT NULL AND v.received_micros IS NOT NULL
GROUP BY since.key, s.sender;

-- name: totals
-- What each wallet traded in all.
WITH counted AS MATERIALIZED (SELECT value AS token FROM json_each(?)),
left_out AS MATERIALIZED (
  SELECT sender, sum(trades) AS trades FROM (
    SELECT sender, trades FROM pair_totals WHERE token_in NOT IN counted OR token_out NOT IN counted
    UNION ALL SELECT sender, 1 FROM excess_swaps)
  GROUP BY sender)
SELECT t.sender, t.trades, coalesce(v.valued, 0) AS valued, coalesce(v.given_micros, 0) AS given,
  coalesce(v.received_micros, 0) AS received, coalesce(l.trades, 0) AS uncounted
FROM sender_totals t
LEFT JOIN sender_values v ON v.sender = t.sender
LEFT JOIN left_out l ON l.sender = t.sender;

-- name: trades_just_before
-- What each wallet traded just before each of several times.
SELECT since.key AS number, s.sender, count(*) AS trades
FROM json_each(?1) since
CROSS JOIN swaps s ON s.burn_block_time >= since.value - ?2 AND s.burn_block_time < since.value
GROUP BY since.key, s.sender;

-- name: changes_since
-- What was recorded since a change, and whether any of it is older than a time or was withdrawn.
SELECT count(*) AS n, max(n.id) AS newest, max(n.kind = 'withdrawn' OR s.burn_block_time < ?2) AS are_old
FROM news n LEFT JOIN swaps s ON n.kind = 'counted' AND s.txid = n.txid WHERE n.id > ?1;

-- name: unvalued_before
-- Whether a swap from before a time waits to be valued.
SELECT 1 AS waits FROM swaps_to_value w JOIN swaps s ON s.txid = w.txid WHERE s.burn_block_time < ? LIMIT 1;

-- name: curves
-- All agents' P&L at the end of each of some days.
SELECT agent_id, json_group_array(json_array(day - ?1, json_extract(last_point, '$[4]'))) AS points
FROM agent_days WHERE day >= ?2 AND day < ?3 GROUP BY agent_id;

-- name: trades_of_round
-- What each wallet traded in a round, at given prices. The + keeps SQLite from reading all swaps in the order of their
-- senders.
WITH {price}
SELECT s.sender, count(*) AS trades, count(i.usd * o.usd) AS priced, count(x.txid) AS excess,
  max(s.burn_block_time) AS latest,
  sum(iif(o.usd IS NULL, NULL, CAST(s.amount_in AS REAL) * i.usd)) AS given_usd,
  sum(iif(i.usd IS NULL, NULL, CAST(s.amount_out AS REAL) * o.usd)) AS received_usd,
  count(v.given_micros + v.received_micros) AS valued,
  sum(iif(v.received_micros IS NULL, NULL, v.given_micros)) AS given_micros,
  sum(iif(v.given_micros IS NULL, NULL, v.received_micros)) AS received_micros
FROM swaps s
LEFT JOIN excess_swaps x ON x.txid = s.txid
LEFT JOIN price i ON i.token = s.token_in AND x.txid IS NULL
LEFT JOIN price o ON o.token = s.token_out AND x.txid IS NULL
LEFT JOIN swap_values v ON v.txid = s.txid
WHERE s.burn_block_time >= ?2 AND s.burn_block_time < ?3
GROUP BY +s.sender;
