-- What moved, net and exact, in the form that the site has: {legsOut: [{asset_id, amount, fee?}], legsIn, provider?}.
-- NULL: an older release recorded the swap.
ALTER TABLE swaps ADD COLUMN raw_event_json TEXT;
-- The site's other columns. Only what succeeded is recorded, and nothing is scored.
ALTER TABLE swaps ADD COLUMN tx_status TEXT NOT NULL DEFAULT 'success' CHECK (tx_status = 'success');
ALTER TABLE swaps ADD COLUMN scored_value INTEGER CHECK (scored_value IS NULL);
ALTER TABLE swaps ADD COLUMN scored_at INTEGER CHECK (scored_at IS NULL);

-- The site's table of this name, as a view: exact at any time, because triggers keep the totals.
CREATE VIEW agent_swap_stats AS
SELECT
  t.sender AS stx_address, t.trades AS trade_count, t.trades AS verified_count, t.first_trade_at, t.last_trade_at,
  (SELECT max(s.recorded_at) / 1000 FROM swaps s WHERE s.sender = t.sender) AS updated_at
FROM sender_totals t;

-- Two tokens given for one is a swap now if all but one of them are fees. What was refused before is verified again.
INSERT INTO candidates (txid, source, added_at, due_at, contract_id)
SELECT txid, source, CAST(strftime('%s', 'now') AS INTEGER) * 1000, 0, contract_id FROM refusals
WHERE code = 'incomplete_events'
  AND (SELECT count(*) FROM json_each(CASE WHEN json_valid(legs_json) THEN legs_json ELSE '{}' END)
       WHERE value GLOB '-*') > 1
  AND (SELECT count(*) FROM json_each(CASE WHEN json_valid(legs_json) THEN legs_json ELSE '{}' END)
       WHERE value NOT GLOB '-*') = 1
ON CONFLICT (txid) DO NOTHING;
DELETE FROM refusals
WHERE code = 'incomplete_events' AND txid IN (SELECT txid FROM candidates)
  AND (SELECT count(*) FROM json_each(CASE WHEN json_valid(legs_json) THEN legs_json ELSE '{}' END)
       WHERE value GLOB '-*') > 1
  AND (SELECT count(*) FROM json_each(CASE WHEN json_valid(legs_json) THEN legs_json ELSE '{}' END)
       WHERE value NOT GLOB '-*') = 1;
