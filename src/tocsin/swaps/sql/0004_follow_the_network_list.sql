-- The network's list of transactions is followed; what it shows is compared by position.
CREATE INDEX swaps_by_position ON swaps (block_height, tx_index);

-- The nonces that were seen of each eligible wallet; more than one range means that a list left something out.
CREATE TABLE nonces (
  wallet TEXT PRIMARY KEY NOT NULL,
  ranges_json TEXT NOT NULL, -- [[low, high, block of the high one], …]
  missing INTEGER NOT NULL,
  missing_above INTEGER -- the block above which the first missing one is
) WITHOUT ROWID;

CREATE INDEX nonces_missing ON nonces (wallet) WHERE missing > 0;

-- The contract that a candidate calls, where it is known: some are asked for with their arguments, in the same call.
ALTER TABLE candidates ADD COLUMN contract_id TEXT;
