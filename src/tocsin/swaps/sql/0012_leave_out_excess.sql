-- Swaps that were worth more than a pool can pay, at the prices of their time: what they were worth, and what the pools
-- held. They have no value. Triggers keep them out of the sums of pairs; they stay in the counts of trades.
CREATE TABLE excess_swaps (
  txid TEXT PRIMARY KEY NOT NULL,
  sender TEXT NOT NULL, -- as in swaps, up to burn_block_time
  token_in TEXT NOT NULL,
  amount_in TEXT NOT NULL,
  token_out TEXT NOT NULL,
  amount_out TEXT NOT NULL,
  burn_block_time INTEGER NOT NULL,
  given_usd TEXT, -- exact decimal numbers; NULL: not known
  given_liquidity_usd TEXT,
  received_usd TEXT,
  received_liquidity_usd TEXT
) WITHOUT ROWID;

CREATE TRIGGER excess_left_out AFTER INSERT ON excess_swaps BEGIN
  UPDATE pair_totals SET
    trades = trades - 1,
    in_0 = in_0 - CAST(substr(new.amount_in, -10) AS INTEGER),
    in_1 = in_1 - CAST(substr(new.amount_in, -20, 10) AS INTEGER),
    in_2 = in_2 - CAST(substr(new.amount_in, -30, 10) AS INTEGER),
    in_3 = in_3 - CAST(substr(new.amount_in, -40, 10) AS INTEGER),
    out_0 = out_0 - CAST(substr(new.amount_out, -10) AS INTEGER),
    out_1 = out_1 - CAST(substr(new.amount_out, -20, 10) AS INTEGER),
    out_2 = out_2 - CAST(substr(new.amount_out, -30, 10) AS INTEGER),
    out_3 = out_3 - CAST(substr(new.amount_out, -40, 10) AS INTEGER)
  WHERE sender = new.sender AND token_in = new.token_in AND token_out = new.token_out;
  DELETE FROM pair_totals
  WHERE sender = new.sender AND token_in = new.token_in AND token_out = new.token_out AND trades = 0;
  INSERT INTO outlays_due SELECT sender, 1, block_height, tx_index FROM swaps WHERE txid = new.txid
  ON CONFLICT (sender) DO UPDATE SET
    changes = changes + 1,
    tx_index = iif((excluded.block_height, excluded.tx_index) < (block_height, tx_index), excluded.tx_index, tx_index),
    block_height = min(block_height, excluded.block_height);
END;

-- A swap that is removed is subtracted from the sums, so it is added to them before.
CREATE TRIGGER excess_put_back AFTER DELETE ON excess_swaps BEGIN
  INSERT INTO pair_totals VALUES (
    old.sender, old.token_in, old.token_out, 1,
    CAST(substr(old.amount_in, -10) AS INTEGER), CAST(substr(old.amount_in, -20, 10) AS INTEGER),
    CAST(substr(old.amount_in, -30, 10) AS INTEGER), CAST(substr(old.amount_in, -40, 10) AS INTEGER),
    CAST(substr(old.amount_out, -10) AS INTEGER), CAST(substr(old.amount_out, -20, 10) AS INTEGER),
    CAST(substr(old.amount_out, -30, 10) AS INTEGER), CAST(substr(old.amount_out, -40, 10) AS INTEGER)
  )
  ON CONFLICT (sender, token_in, token_out) DO UPDATE SET
    trades = trades + 1,
    in_0 = in_0 + excluded.in_0, in_1 = in_1 + excluded.in_1,
    in_2 = in_2 + excluded.in_2, in_3 = in_3 + excluded.in_3,
    out_0 = out_0 + excluded.out_0, out_1 = out_1 + excluded.out_1,
    out_2 = out_2 + excluded.out_2, out_3 = out_3 + excluded.out_3;
END;

CREATE TRIGGER excess_removed BEFORE DELETE ON swaps BEGIN
  DELETE FROM excess_swaps WHERE txid = old.txid;
END;

CREATE TRIGGER excess_unchanged BEFORE UPDATE ON excess_swaps BEGIN
  SELECT RAISE(ABORT, 'an excessive swap is replaced (delete, insert), never changed: its totals would not follow');
END;

CREATE TABLE competition_round_excesses (
  round_id TEXT NOT NULL,
  txid TEXT NOT NULL,
  given_usd TEXT,
  given_liquidity_usd TEXT,
  received_usd TEXT,
  received_liquidity_usd TEXT,
  PRIMARY KEY (round_id, txid)
) WITHOUT ROWID;

DROP VIEW pair_totals_recounted;
CREATE VIEW pair_totals_recounted AS
SELECT
  sender, token_in, token_out, count(*) AS trades,
  sum(CAST(substr(amount_in, -10) AS INTEGER)) AS in_0,
  sum(CAST(substr(amount_in, -20, 10) AS INTEGER)) AS in_1,
  sum(CAST(substr(amount_in, -30, 10) AS INTEGER)) AS in_2,
  sum(CAST(substr(amount_in, -40, 10) AS INTEGER)) AS in_3,
  sum(CAST(substr(amount_out, -10) AS INTEGER)) AS out_0,
  sum(CAST(substr(amount_out, -20, 10) AS INTEGER)) AS out_1,
  sum(CAST(substr(amount_out, -30, 10) AS INTEGER)) AS out_2,
  sum(CAST(substr(amount_out, -40, 10) AS INTEGER)) AS out_3
FROM swaps WHERE txid NOT IN (SELECT txid FROM excess_swaps) GROUP BY sender, token_in, token_out;

-- Values from before this release that may be excessive are computed again.
INSERT INTO swaps_to_value (due_at, txid)
SELECT s.burn_block_time * 1000, v.txid FROM swap_values v JOIN swaps s ON s.txid = v.txid
WHERE v.given_micros IS NULL OR v.received_micros IS NULL OR v.received_micros > v.given_micros * 5
  OR max(v.given_micros, v.received_micros) > 10000 * 1000000
ON CONFLICT DO NOTHING;
DELETE FROM swap_values
WHERE given_micros IS NULL OR received_micros IS NULL OR received_micros > given_micros * 5
  OR max(given_micros, received_micros) > 10000 * 1000000;
