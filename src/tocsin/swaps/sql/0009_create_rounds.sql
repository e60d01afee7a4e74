-- Rounds: periods of the competition with a result of their own. Names are those of the site, where it has them.
-- Times are unix seconds; those of what the service did are ISO 8601. Exact sums are decimal text.

CREATE TABLE competition_rounds (
  round_id TEXT PRIMARY KEY NOT NULL,
  starts_at INTEGER NOT NULL,
  ends_at INTEGER NOT NULL CHECK (ends_at > starts_at),
  grace_ends_at INTEGER NOT NULL CHECK (grace_ends_at >= ends_at),
  status TEXT NOT NULL DEFAULT 'open'
    CHECK (status IN ('open', 'closed', 'finalizing', 'finalized', 'partially_paid', 'paid', 'void')),
  min_volume_usd REAL NOT NULL DEFAULT 50.0,
  min_priced_trade_count INTEGER NOT NULL DEFAULT 3,
  created_at TEXT NOT NULL,
  finalized_at TEXT,
  rules_json TEXT NOT NULL, -- all rules, exact
  version INTEGER NOT NULL DEFAULT 1, -- of the result: reopening makes the next one
  closed_at TEXT,
  captured_at TEXT,
  allowlist_version TEXT, -- when it was captured, as the next one
  complete_until_block INTEGER,
  digest TEXT, -- of the file of this version
  waiting_reason TEXT, -- why it cannot be captured yet
  waiting_since INTEGER, -- unix ms
  note TEXT -- why it was made void or opened again
);

CREATE INDEX competition_rounds_by_end ON competition_rounds (ends_at);

-- The prices of the end. Results are computed from these alone.
CREATE TABLE competition_round_price_snapshots (
  round_id TEXT NOT NULL REFERENCES competition_rounds (round_id),
  token_id TEXT NOT NULL,
  price_usd REAL NOT NULL,
  decimals INTEGER NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('tenero', 'peg', 'manual_admin')),
  captured_at TEXT NOT NULL,
  price_usd_exact TEXT NOT NULL,
  seen_at INTEGER NOT NULL, -- unix ms
  liquidity_usd TEXT,
  volume_usd TEXT,
  reason TEXT,
  PRIMARY KEY (round_id, token_id)
);

-- Prices that an operator sets for a round, in force when it is captured.
CREATE TABLE competition_round_price_overrides (
  round_id TEXT NOT NULL REFERENCES competition_rounds (round_id),
  token_id TEXT NOT NULL,
  price_usd TEXT NOT NULL,
  decimals INTEGER NOT NULL,
  reason TEXT NOT NULL,
  set_by TEXT NOT NULL,
  set_at TEXT NOT NULL,
  PRIMARY KEY (round_id, token_id)
) WITHOUT ROWID;

-- What operators decided about flags.
CREATE TABLE competition_round_decisions (
  round_id TEXT NOT NULL REFERENCES competition_rounds (round_id),
  erc8004_agent_id INTEGER NOT NULL,
  kind TEXT NOT NULL, -- empty: all of them
  decision TEXT NOT NULL CHECK (decision IN ('clear', 'exclude')),
  reason TEXT NOT NULL,
  decided_by TEXT NOT NULL,
  decided_at TEXT NOT NULL,
  PRIMARY KEY (round_id, erc8004_agent_id, kind)
) WITHOUT ROWID;

-- Who and what the result is computed from, as it was when the round was captured.
CREATE TABLE competition_round_agents (
  round_id TEXT NOT NULL,
  stx_address TEXT NOT NULL,
  btc_address TEXT NOT NULL,
  erc8004_agent_id INTEGER NOT NULL,
  display_name TEXT,
  owner TEXT,
  first_funder TEXT,
  PRIMARY KEY (round_id, stx_address)
) WITHOUT ROWID;

CREATE TABLE competition_round_swaps (
  round_id TEXT NOT NULL,
  txid TEXT NOT NULL,
  sender TEXT NOT NULL,
  contract_id TEXT NOT NULL,
  function_name TEXT NOT NULL,
  token_in TEXT NOT NULL,
  amount_in TEXT NOT NULL,
  token_out TEXT NOT NULL,
  amount_out TEXT NOT NULL,
  burn_block_time INTEGER NOT NULL,
  block_height INTEGER NOT NULL,
  tx_index INTEGER NOT NULL,
  source TEXT NOT NULL,
  PRIMARY KEY (round_id, txid)
) WITHOUT ROWID;

CREATE TABLE competition_round_refusals (
  round_id TEXT NOT NULL,
  txid TEXT NOT NULL,
  sender TEXT NOT NULL,
  code TEXT NOT NULL,
  reason TEXT NOT NULL,
  burn_block_time INTEGER NOT NULL,
  PRIMARY KEY (round_id, txid)
) WITHOUT ROWID;

CREATE TABLE competition_round_results (
  round_id TEXT NOT NULL REFERENCES competition_rounds (round_id),
  stx_address TEXT NOT NULL,
  rank INTEGER NOT NULL,
  btc_address TEXT NOT NULL,
  erc8004_agent_id INTEGER NOT NULL,
  trade_count INTEGER NOT NULL,
  priced_trade_count INTEGER NOT NULL,
  unpriced_trade_count INTEGER NOT NULL,
  volume_usd REAL NOT NULL,
  received_usd REAL NOT NULL,
  pnl_usd REAL NOT NULL,
  pnl_percent REAL,
  latest_trade_at INTEGER NOT NULL,
  result_json TEXT NOT NULL,
  calculated_at TEXT NOT NULL,
  exact_json TEXT NOT NULL, -- the whole result with exact sums
  PRIMARY KEY (round_id, stx_address)
);

CREATE INDEX competition_round_results_by_rank ON competition_round_results (round_id, rank);
CREATE INDEX competition_round_results_by_agent ON competition_round_results (stx_address);

CREATE TABLE competition_rewards (
  round_id TEXT NOT NULL REFERENCES competition_rounds (round_id),
  category TEXT NOT NULL CHECK (category IN ('overall_pnl', 'volume', 'return')),
  rank INTEGER NOT NULL,
  stx_address TEXT NOT NULL,
  erc8004_agent_id INTEGER NOT NULL,
  amount_sats INTEGER NOT NULL,
  status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'paid', 'failed', 'void')),
  payout_txid TEXT,
  paid_at TEXT,
  notes TEXT,
  created_at TEXT NOT NULL,
  PRIMARY KEY (round_id, category)
);

CREATE TABLE competition_round_flags (
  round_id TEXT NOT NULL REFERENCES competition_rounds (round_id),
  erc8004_agent_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  flag_json TEXT NOT NULL,
  PRIMARY KEY (round_id, erc8004_agent_id, kind)
) WITHOUT ROWID;

-- The published file of each version, in parts: D1 bounds the size of a row.
CREATE TABLE competition_round_files (
  round_id TEXT NOT NULL REFERENCES competition_rounds (round_id),
  version INTEGER NOT NULL,
  part INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (round_id, version, part)
);

-- Transactions of a captured round that came, went or moved since; the task compares each with what was captured.
CREATE TABLE competition_round_changes (
  round_id TEXT NOT NULL,
  txid TEXT NOT NULL,
  PRIMARY KEY (round_id, txid)
) WITHOUT ROWID;

-- What differs today from what a result was computed from. It never changes the result.
CREATE TABLE competition_round_discrepancies (
  round_id TEXT NOT NULL REFERENCES competition_rounds (round_id),
  subject TEXT NOT NULL, -- a transaction or an address
  version INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('late', 'withdrawn', 'changed', 'agent_ineligible')),
  detail TEXT NOT NULL,
  found_at TEXT NOT NULL,
  PRIMARY KEY (round_id, subject)
) WITHOUT ROWID;

-- The rule by which rounds follow each other; one row at most.
CREATE TABLE competition_round_rule (
  rule_id INTEGER PRIMARY KEY CHECK (rule_id = 1),
  rule_json TEXT NOT NULL,
  set_by TEXT NOT NULL,
  set_at TEXT NOT NULL
);

CREATE INDEX swaps_by_time ON swaps (burn_block_time);

CREATE TRIGGER swap_came_after_capture AFTER INSERT ON swaps BEGIN
  INSERT INTO competition_round_changes (round_id, txid)
  SELECT round_id, new.txid FROM competition_rounds
  WHERE ends_at > new.burn_block_time AND starts_at <= new.burn_block_time
    AND status IN ('finalizing', 'finalized', 'partially_paid', 'paid')
  ON CONFLICT (round_id, txid) DO NOTHING;
END;

CREATE TRIGGER swap_went_after_capture AFTER DELETE ON swaps BEGIN
  INSERT INTO competition_round_changes (round_id, txid)
  SELECT round_id, old.txid FROM competition_rounds
  WHERE ends_at > old.burn_block_time AND starts_at <= old.burn_block_time
    AND status IN ('finalizing', 'finalized', 'partially_paid', 'paid')
  ON CONFLICT (round_id, txid) DO NOTHING;
END;
