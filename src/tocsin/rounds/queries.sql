-- name: is_published
-- A part: the states of a round that has a result.
status IN ('finalized', 'partially_paid', 'paid')

-- name: round
-- A round.
SELECT * FROM competition_rounds WHERE round_id = ?;

-- name: unfinished
-- The rounds without a result, ordered by their end.
SELECT * FROM competition_rounds WHERE status IN ('open', 'closed', 'finalizing') ORDER BY ends_at, round_id;

-- name: add_round
-- Add a round; an existing one stays unchanged.
INSERT INTO competition_rounds
  (round_id, starts_at, ends_at, grace_ends_at, min_volume_usd, min_priced_trade_count, created_at, rules_json)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (round_id) DO NOTHING;

-- name: close
-- Close an open round.
UPDATE competition_rounds SET status = 'closed', closed_at = ? WHERE round_id = ? AND status = 'open';

-- name: open_again
-- Open a round again that was closed while the clock was ahead.
UPDATE competition_rounds SET status = 'open', closed_at = NULL, waiting_reason = NULL, waiting_since = NULL
WHERE round_id = ? AND status = 'closed';

-- name: wait
-- Note why a round does not advance, and since when it waits; the clock may have been set back.
UPDATE competition_rounds SET waiting_reason = ?1, waiting_since = min(coalesce(waiting_since, ?2), ?2)
WHERE round_id = ?3 AND status IN ('open', 'closed', 'finalizing');

-- name: rule
-- The rule by which rounds follow each other.
SELECT rule_json, CAST(strftime('%s', set_at) AS INTEGER) AS set_at_s FROM competition_round_rule WHERE rule_id = 1;

-- name: newest_by_rule
-- The start of the newest round that the rule has added: names of other rounds may begin the same way. D1 binds
-- numbers as reals.
SELECT max(starts_at) AS newest FROM competition_rounds
WHERE starts_at <= ?1 AND (starts_at - ?2) % ?3 = 0 AND ends_at = starts_at + ?3
  AND round_id = ?4 || '-' || CAST(?5 + (starts_at - ?2) / ?3 AS INTEGER) || '-'
    || strftime('%Y-%m-%d', starts_at, 'unixepoch');

-- name: set_rule
-- Set the rule.
INSERT INTO competition_round_rule (rule_id, rule_json, set_by, set_at) VALUES (1, ?, ?, ?)
ON CONFLICT (rule_id) DO UPDATE
SET rule_json = excluded.rule_json, set_by = excluded.set_by, set_at = excluded.set_at;

-- name: end_rule
-- End the rule.
DELETE FROM competition_round_rule;

-- name: set_price
-- Set the price of a token at the end of a round that is not captured yet.
INSERT INTO competition_round_price_overrides (round_id, token_id, price_usd, decimals, reason, set_by, set_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE EXISTS
  (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND status IN ('open', 'closed'))
ON CONFLICT (round_id, token_id) DO UPDATE SET price_usd = excluded.price_usd, decimals = excluded.decimals,
  reason = excluded.reason, set_by = excluded.set_by, set_at = excluded.set_at;

-- name: set_decision
-- Decide about an agent's flags in a round that is not captured yet.
INSERT INTO competition_round_decisions (round_id, erc8004_agent_id, kind, decision, reason, decided_by, decided_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE EXISTS
  (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND status IN ('open', 'closed'))
ON CONFLICT (round_id, erc8004_agent_id, kind) DO UPDATE SET decision = excluded.decision, reason = excluded.reason,
  decided_by = excluded.decided_by, decided_at = excluded.decided_at;

-- name: void_round
-- Make a round void, unless a prize was paid.
UPDATE competition_rounds SET status = 'void', note = ?, waiting_reason = NULL, waiting_since = NULL
WHERE round_id = ? AND status IN ('open', 'closed', 'finalizing', 'finalized');

-- name: void_rewards
-- Make the prizes of a void round void.
UPDATE competition_rewards SET status = 'void'
WHERE round_id = ?1 AND EXISTS (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND status = 'void');

-- name: reopen
-- Have the result of a round computed again, as the next version.
UPDATE competition_rounds SET status = 'closed', version = version + 1, digest = NULL, finalized_at = NULL,
  captured_at = NULL, note = ?1, waiting_reason = NULL, waiting_since = NULL
WHERE round_id = ?2 AND status = 'finalized' AND version = ?3;

-- name: unpaid
-- Whether a prize is still to be paid.
SELECT 1 FROM competition_rewards WHERE round_id = ? AND category = ? AND status IN ('pending', 'failed');

-- name: pay
-- Record how a payment went.
UPDATE competition_rewards SET status = ?1, payout_txid = coalesce(?2, payout_txid),
  paid_at = CASE WHEN ?1 = 'paid' THEN ?3 ELSE paid_at END, notes = coalesce(?4, notes)
WHERE round_id = ?5 AND category = ?6 AND status IN ('pending', 'failed');

-- name: paid
-- Change the status of a round after a payment.
UPDATE competition_rounds SET status = iif(
    EXISTS (SELECT 1 FROM competition_rewards WHERE round_id = ?1 AND status IN ('pending', 'failed')),
    'partially_paid', 'paid')
WHERE round_id = ?1 AND status IN ('finalized', 'partially_paid')
  AND EXISTS (SELECT 1 FROM competition_rewards WHERE round_id = ?1 AND status = 'paid');

-- name: newest
-- The rounds with a result, newest first.
SELECT * FROM competition_rounds WHERE {is_published} ORDER BY ends_at DESC, round_id DESC LIMIT ? OFFSET ?;

-- name: listed
-- The newest rounds of every status.
SELECT * FROM competition_rounds ORDER BY ends_at DESC, round_id DESC LIMIT 200;

-- name: discrepancy_counts
-- How many discrepancies each round has.
SELECT round_id, count(*) AS n FROM competition_round_discrepancies GROUP BY round_id;

-- name: all_rewards
-- The prizes of all rounds.
SELECT * FROM competition_rewards ORDER BY round_id, category;

-- name: in_force
-- The running round; if there are several, the one that ends first; if there is none, the one that ended last.
SELECT * FROM competition_rounds WHERE starts_at <= ?1 AND status <> 'void'
ORDER BY ends_at <= ?1, iif(ends_at > ?1, ends_at, -ends_at), round_id LIMIT 1;

-- name: running
-- The running round; if there are several, the one that ends first.
SELECT * FROM competition_rounds WHERE status = 'open' AND starts_at <= ?1 AND ends_at > ?1
ORDER BY ends_at, round_id LIMIT 1;

-- name: next
-- The round that starts next.
SELECT * FROM competition_rounds WHERE status = 'open' AND starts_at > ? ORDER BY starts_at, round_id LIMIT 1;

-- name: over
-- The rounds that are over but have no result yet.
SELECT * FROM competition_rounds WHERE status IN ('open', 'closed', 'finalizing') AND ends_at <= ?
ORDER BY ends_at, round_id LIMIT 20;

-- name: up_to_the_winner
-- The agents up to the winner of the prize for the best P&L, at most four.
SELECT p.rank, p.erc8004_agent_id AS agent_id, p.stx_address, a.display_name
FROM competition_round_results p LEFT JOIN agents a ON a.stx_address = p.stx_address
WHERE p.round_id = ?1 AND p.rank <=
  (SELECT rank FROM competition_rewards WHERE round_id = ?1 AND category = 'overall_pnl')
ORDER BY p.rank LIMIT 4;

-- name: winners
-- The winners of rounds.
SELECT w.round_id, w.category, w.stx_address, w.erc8004_agent_id, w.amount_sats, a.display_name
FROM competition_rewards w LEFT JOIN agents a ON a.stx_address = w.stx_address
WHERE w.round_id IN (SELECT value FROM json_each(?)) ORDER BY w.round_id, w.category;

-- name: results
-- The results of a round, best first.
SELECT * FROM competition_round_results WHERE round_id = ? ORDER BY rank;

-- name: result_of_wallet
-- The result in which a wallet counts.
SELECT p.* FROM competition_round_results p, json_each(p.exact_json, '$.wallets') w
WHERE p.round_id = ? AND w.value = ? LIMIT 1;

-- name: latest_result
-- The newest result in which a wallet counts. A result has one of the agent's wallets as its address, which the index
-- finds; `wallets` lists all that count in it.
SELECT p.* FROM competition_round_results p JOIN competition_rounds r ON r.round_id = p.round_id
WHERE p.stx_address IN (SELECT ?1 UNION SELECT o.stx_address FROM agents a
    JOIN agents o ON o.erc8004_agent_id = a.erc8004_agent_id WHERE a.stx_address = ?1)
  AND EXISTS (SELECT 1 FROM json_each(p.exact_json, '$.wallets') w WHERE w.value = ?1)
  AND r.{is_published} ORDER BY r.ends_at DESC, r.round_id DESC LIMIT 1;

-- name: results_of_agent
-- An agent's newest results.
SELECT p.round_id, r.ends_at * 1000 AS ends_at, p.rank, iif(p.priced_trade_count, p.pnl_usd, NULL) AS pnl_usd,
  p.pnl_percent * 100 AS pnl_percent,
  iif(p.priced_trade_count, p.volume_usd, NULL) AS volume_usd, p.trade_count,
  (SELECT max(rank) FROM competition_round_results o WHERE o.round_id = p.round_id) AS ranked
FROM competition_round_results p JOIN competition_rounds r ON r.round_id = p.round_id
WHERE p.stx_address IN (SELECT value FROM json_each(?1)) AND p.erc8004_agent_id = ?2 AND r.{is_published}
ORDER BY r.ends_at DESC, r.round_id DESC LIMIT ?3;

-- name: prizes_of_agent
-- An agent's prizes in a round.
SELECT category, amount_sats, status, payout_txid FROM competition_rewards
WHERE round_id = ? AND erc8004_agent_id = ? ORDER BY category;

-- name: flags_of_agent
-- An agent's flags in a round.
SELECT * FROM competition_round_flags WHERE round_id = ? AND erc8004_agent_id = ? ORDER BY kind;

-- name: rewards
-- The prizes of a round.
SELECT * FROM competition_rewards WHERE round_id = ? ORDER BY category;

-- name: flags
-- The flags of a round.
SELECT * FROM competition_round_flags WHERE round_id = ? ORDER BY erc8004_agent_id, kind;

-- name: discrepancies
-- The discrepancies of a round.
SELECT * FROM competition_round_discrepancies WHERE round_id = ? ORDER BY subject LIMIT 1000;

-- name: file_part
-- A part of a round's file.
SELECT text FROM competition_round_files WHERE round_id = ? AND version = ? AND part = ?;

-- name: blocks_and_unverified
-- A block that certainly lies after a round, and how many listed transactions may lie within it.
WITH blocks AS MATERIALIZED (SELECT
  (SELECT block_height FROM swaps WHERE burn_block_time < ?1 ORDER BY burn_block_time DESC LIMIT 1) AS before,
  (SELECT block_height FROM swaps WHERE burn_block_time >= ?2 ORDER BY burn_block_time LIMIT 1) AS after)
SELECT b.after AS block_after, (
  SELECT count(*) FROM candidates c
  WHERE (c.block_height = 0
      OR c.block_height > coalesce(b.before, 0) AND (b.after IS NULL OR c.block_height < b.after))
    AND NOT EXISTS (SELECT 1 FROM swaps s WHERE s.txid = c.txid)
) AS unverified FROM blocks b;

-- name: eligible_since
-- Refused transactions of a round whose senders have become eligible since: the next sweep verifies them.
SELECT count(*) AS n FROM refusals r JOIN agent_tiers t ON t.stx_address = r.sender AND t.tier = 'eligible'
WHERE r.burn_block_time >= ? AND r.burn_block_time < ? AND r.code IN ('sender_not_registered', 'sender_not_genesis');

-- name: unvalued
-- How many swaps of a round wait to be valued. The task values them before it takes a step.
SELECT count(*) AS n FROM swaps_to_value w JOIN swaps s ON s.txid = w.txid
WHERE w.due_at <= ? AND s.burn_block_time >= ? AND s.burn_block_time < ?;

-- name: tokens
-- The tokens for which a round needs prices: those traded in it, and those that an operator priced.
SELECT token_in AS token FROM swaps WHERE burn_block_time >= ?1 AND burn_block_time < ?2
UNION SELECT token_out FROM swaps WHERE burn_block_time >= ?1 AND burn_block_time < ?2
UNION SELECT token_id FROM competition_round_price_overrides WHERE round_id = ?3;

-- name: overrides
-- The prices that operators set.
SELECT * FROM competition_round_price_overrides WHERE round_id = ?;

-- name: decisions
-- The decisions of operators about flags.
SELECT * FROM competition_round_decisions WHERE round_id = ? ORDER BY erc8004_agent_id, kind;

-- name: prices
-- The captured prices of a round.
SELECT * FROM competition_round_price_snapshots WHERE round_id = ? ORDER BY token_id;

-- name: captured_agents
-- Captured agents after a wallet.
SELECT * FROM competition_round_agents WHERE round_id = ? AND stx_address > ? ORDER BY stx_address LIMIT ?;

-- name: swap_columns
-- A part: the columns of a swap that are captured.
s.txid, s.sender, s.contract_id, s.function_name, s.token_in, s.amount_in, s.token_out, s.amount_out,
  s.burn_block_time, s.block_height, s.tx_index, s.source

-- name: captured_swaps
-- Captured swaps after a transaction.
SELECT {swap_columns} FROM competition_round_swaps s WHERE s.round_id = ? AND s.txid > ? ORDER BY s.txid LIMIT ?;

-- name: refusal_columns
-- A part: the columns of a refusal that are captured.
r.txid, r.sender, r.code, r.reason, r.burn_block_time

-- name: captured_refusals
-- Captured refusals after a transaction.
SELECT {refusal_columns} FROM competition_round_refusals r WHERE r.round_id = ? AND r.txid > ? ORDER BY r.txid LIMIT ?;

-- name: excess_columns
-- A part: the columns of an excessive swap that are captured.
e.txid, e.given_usd, e.given_liquidity_usd, e.received_usd, e.received_liquidity_usd

-- name: captured_excesses
-- Captured excessive swaps after a transaction.
SELECT {excess_columns} FROM competition_round_excesses e WHERE e.round_id = ? AND e.txid > ? ORDER BY e.txid LIMIT ?;

-- name: agents_now
-- A part: the agents that would be captured now.
agents a JOIN agent_tiers t ON t.stx_address = a.stx_address AND t.tier = 'eligible'

-- name: agent_columns
-- A part: the columns of an agent that are captured.
a.stx_address, a.btc_address, a.erc8004_agent_id, a.display_name, a.owner

-- name: live_agents
-- Agents after a wallet, as they would be captured now.
SELECT {agent_columns} FROM {agents_now} WHERE a.stx_address > ? ORDER BY a.stx_address LIMIT ?;

-- name: live_swaps
-- Swaps before the end of a round, after a time and transaction. The first page begins at the start of the round: with
-- a condition for the start, SQLite would read all earlier pages each time.
SELECT {swap_columns} FROM swaps s CROSS JOIN agent_tiers t ON t.stx_address = s.sender AND t.tier = 'eligible'
WHERE s.burn_block_time < ? AND (s.burn_block_time, s.txid) > (?, ?) ORDER BY s.burn_block_time, s.txid LIMIT ?;

-- name: refusals_now
-- A part: the refusals that would be captured now.
refusals r JOIN agents a ON a.stx_address = r.sender

-- name: live_refusals
-- Refusals after a transaction, as they would be captured now.
SELECT {refusal_columns} FROM {refusals_now}
WHERE r.burn_block_time >= ? AND r.burn_block_time < ? AND r.txid > ? ORDER BY r.txid LIMIT ?;

-- name: excesses_now
-- A part: the excessive swaps that would be captured now.
excess_swaps e JOIN agent_tiers t ON t.stx_address = e.sender AND t.tier = 'eligible'

-- name: live_excesses
-- Excessive swaps after a transaction, as they would be captured now.
SELECT {excess_columns} FROM {excesses_now}
WHERE e.burn_block_time >= ? AND e.burn_block_time < ? AND e.txid > ? ORDER BY e.txid LIMIT ?;

-- name: eligible_wallets
-- The eligible wallets.
SELECT stx_address FROM agent_tiers WHERE tier = 'eligible';

-- name: begin_capture
-- Capture a round, unless a token without a price was traded in it in the meantime.
UPDATE competition_rounds SET status = 'finalizing', captured_at = ?2, allowlist_version = ?3,
  complete_until_block = ?4, waiting_reason = NULL, waiting_since = NULL
WHERE round_id = ?1 AND status = 'closed' AND version = ?5 AND NOT EXISTS (
  SELECT 1 FROM swaps WHERE burn_block_time >= ?6 AND burn_block_time < ?7
    AND (token_in NOT IN (SELECT value FROM json_each(?8)) OR token_out NOT IN (SELECT value FROM json_each(?8))));

-- name: is_captured
-- A part: only the batch that changed the status writes anything.
EXISTS (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND status = 'finalizing' AND captured_at = ?2)

-- name: capture_prices
-- Capture the prices of the end.
INSERT INTO competition_round_price_snapshots (round_id, token_id, price_usd, decimals, source, captured_at,
  price_usd_exact, seen_at, liquidity_usd, volume_usd, reason)
SELECT ?1, json_extract(p.value, '$.token_id'), CAST(json_extract(p.value, '$.price_usd') AS REAL),
  json_extract(p.value, '$.decimals'), json_extract(p.value, '$.source'), ?2, json_extract(p.value, '$.price_usd'),
  json_extract(p.value, '$.at'), json_extract(p.value, '$.liquidity_usd'), json_extract(p.value, '$.volume_usd'),
  json_extract(p.value, '$.reason')
FROM json_each(?3) p WHERE {is_captured};

-- name: capture_agents
-- Capture the eligible agents, with their first funders.
INSERT INTO competition_round_agents
  (round_id, stx_address, btc_address, erc8004_agent_id, display_name, owner, first_funder)
WITH known AS MATERIALIZED (SELECT key AS wallet, value AS funder FROM json_each(?3))
SELECT ?1, {agent_columns}, k.funder FROM {agents_now} LEFT JOIN known k ON k.wallet = a.stx_address
WHERE {is_captured};

-- name: capture_refusals
-- Capture the refusals.
INSERT INTO competition_round_refusals (round_id, txid, sender, code, reason, burn_block_time)
SELECT ?1, {refusal_columns} FROM {refusals_now}
WHERE r.burn_block_time >= ?3 AND r.burn_block_time < ?4 AND {is_captured};

-- name: capture_excesses
-- Capture the excessive swaps.
INSERT INTO competition_round_excesses
  (round_id, txid, given_usd, given_liquidity_usd, received_usd, received_liquidity_usd)
SELECT ?1, {excess_columns} FROM {excesses_now}
WHERE e.burn_block_time >= ?3 AND e.burn_block_time < ?4 AND {is_captured};

-- name: capture_swaps
-- Capture the swaps. Writing rows in the order of their key is five times as fast.
INSERT INTO competition_round_swaps (round_id, txid, sender, contract_id, function_name, token_in, amount_in, token_out,
  amount_out, burn_block_time, block_height, tx_index, source)
SELECT ?1, {swap_columns} FROM swaps s JOIN agent_tiers t ON t.stx_address = s.sender AND t.tier = 'eligible'
WHERE s.burn_block_time >= ?3 AND s.burn_block_time < ?4 AND {is_captured} ORDER BY s.txid;

-- name: write_part
-- Write a part of the file. Nobody sees it until the status says that the file is complete.
INSERT INTO competition_round_files (round_id, version, part, text)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS
  (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND version = ?2 AND status = 'finalizing')
ON CONFLICT (round_id, version, part) DO UPDATE SET text = excluded.text;

-- name: finalize
-- Make the result final.
UPDATE competition_rounds SET status = 'finalized', finalized_at = ?1, digest = ?2, waiting_reason = NULL,
  waiting_since = NULL
WHERE round_id = ?3 AND version = ?4 AND status = 'finalizing';

-- name: is_finalized
-- A part: only the batch that changed the status writes anything.
EXISTS (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND status = 'finalized' AND finalized_at = ?2)

-- name: drop_last_parts
-- Drop parts of the file that a run wrote which did not end.
DELETE FROM competition_round_files WHERE round_id = ?1 AND version = ?3 AND part >= ?4 AND {is_finalized};

-- name: write_results
-- Write the results.
INSERT INTO competition_round_results (round_id, stx_address, rank, btc_address, erc8004_agent_id, trade_count,
  priced_trade_count, unpriced_trade_count, volume_usd, received_usd, pnl_usd, pnl_percent, latest_trade_at,
  result_json, calculated_at, exact_json)
SELECT ?1, json_extract(r.value, '$.stx_address'), json_extract(r.value, '$.rank'),
  json_extract(r.value, '$.btc_address'), json_extract(r.value, '$.erc8004_agent_id'),
  json_extract(r.value, '$.trade_count'), json_extract(r.value, '$.priced_trade_count'),
  json_extract(r.value, '$.unpriced_trade_count'), CAST(json_extract(r.value, '$.volume_usd') AS REAL),
  CAST(json_extract(r.value, '$.received_usd') AS REAL), CAST(json_extract(r.value, '$.pnl_usd') AS REAL),
  CAST(json_extract(r.value, '$.pnl_percent') AS REAL), json_extract(r.value, '$.latest_trade_at'),
  json_object('source_counts', json_extract(r.value, '$.source_counts'),
    'unpriced_tokens', json_extract(r.value, '$.unpriced_tokens')), ?2, r.value
FROM json_each(?3) r WHERE {is_finalized};

-- name: write_rewards
-- Write the prizes.
INSERT INTO competition_rewards
  (round_id, category, rank, stx_address, erc8004_agent_id, amount_sats, created_at)
SELECT ?1, json_extract(r.value, '$.category'), json_extract(r.value, '$.rank'),
  json_extract(r.value, '$.stx_address'), json_extract(r.value, '$.erc8004_agent_id'),
  json_extract(r.value, '$.amount_sats'), ?2
FROM json_each(?3) r WHERE {is_finalized};

-- name: write_flags
-- Write the flags.
INSERT INTO competition_round_flags (round_id, erc8004_agent_id, kind, flag_json)
SELECT ?1, json_extract(f.value, '$.erc8004_agent_id'), json_extract(f.value, '$.kind'), f.value
FROM json_each(?3) f WHERE {is_finalized}
ON CONFLICT (round_id, erc8004_agent_id, kind) DO NOTHING;

-- name: noted_changes
-- The swaps of rounds with a result that appeared, disappeared or moved; triggers note them.
SELECT c.round_id, c.txid, r.version FROM competition_round_changes c
JOIN competition_rounds r ON r.round_id = c.round_id
WHERE r.{is_published} ORDER BY c.round_id, c.txid LIMIT ?;

-- name: captured_swaps_by_txid
-- Captured swaps.
SELECT * FROM competition_round_swaps WHERE round_id = ? AND txid IN (SELECT value FROM json_each(?));

-- name: swaps_by_txid
-- The same swaps as they are recorded now.
SELECT * FROM swaps WHERE txid IN (SELECT value FROM json_each(?));

-- name: forget_changes
-- Forget noted changes that were compared.
DELETE FROM competition_round_changes WHERE round_id = ? AND txid IN (SELECT value FROM json_each(?));

-- name: settle_discrepancies
-- Forget the discrepancies of swaps that are compared again.
DELETE FROM competition_round_discrepancies WHERE round_id = ? AND subject IN (SELECT value FROM json_each(?));

-- name: add_discrepancies
-- Add discrepancies.
INSERT INTO competition_round_discrepancies (round_id, subject, version, kind, detail, found_at)
SELECT ?1, json_extract(d.value, '$.subject'), ?2, json_extract(d.value, '$.kind'), json_extract(d.value, '$.detail'),
  json_extract(d.value, '$.found_at')
FROM json_each(?3) d WHERE true
ON CONFLICT (round_id, subject) DO UPDATE SET kind = excluded.kind, detail = excluded.detail;

-- name: ineligible
-- Placed wallets that are no longer eligible, and are not noted yet.
SELECT r.round_id, r.version, c.stx_address, coalesce(t.tier, 'not_registered') AS tier
FROM competition_rounds r
JOIN competition_round_agents c ON c.round_id = r.round_id
LEFT JOIN agent_tiers t ON t.stx_address = c.stx_address
WHERE r.status IN ('finalized', 'partially_paid') AND coalesce(t.tier, '') <> 'eligible'
  AND NOT EXISTS (SELECT 1 FROM competition_round_discrepancies d
    WHERE d.round_id = r.round_id AND d.subject = c.stx_address)
  AND EXISTS (SELECT 1 FROM competition_round_results p, json_each(p.exact_json, '$.wallets') w
    WHERE p.round_id = r.round_id AND p.erc8004_agent_id = c.erc8004_agent_id AND w.value = c.stx_address)
ORDER BY r.round_id, c.stx_address LIMIT ?;

-- name: eligible_again
-- Forget the discrepancies of wallets that are eligible again.
DELETE FROM competition_round_discrepancies WHERE kind = 'agent_ineligible'
  AND subject IN (SELECT stx_address FROM agent_tiers WHERE tier = 'eligible');
