-- The competition's tables, for SQLite and D1 alike. Amounts are decimal text, exact at any size.

CREATE TABLE agents (
  btc_address TEXT PRIMARY KEY NOT NULL,
  stx_address TEXT NOT NULL UNIQUE,
  stx_public_key TEXT,
  btc_public_key TEXT,
  taproot_address TEXT,
  display_name TEXT,
  description TEXT,
  bns_name TEXT,
  owner TEXT,
  verified_at TEXT,
  last_active_at TEXT,
  erc8004_agent_id INTEGER, -- not unique: a wallet may be rotated
  nostr_public_key TEXT,
  capabilities_json TEXT,
  last_identity_check TEXT,
  github_username TEXT,
  referred_by_btc TEXT,
  referral_code TEXT,
  last_check_in_at TEXT
);

CREATE TABLE claims (
  btc_address TEXT PRIMARY KEY NOT NULL REFERENCES agents (btc_address),
  display_name TEXT,
  tweet_url TEXT,
  tweet_author TEXT,
  claimed_at TEXT,
  reward_satoshis INTEGER,
  reward_txid TEXT,
  status TEXT NOT NULL CHECK (status IN ('pending', 'verified', 'rewarded', 'failed'))
);

CREATE VIEW registered_wallets AS
SELECT btc_address, stx_address, taproot_address, verified_at, last_active_at FROM agents;

-- The one eligibility predicate: verifier, sweep and board all read it here. No row: not registered.
CREATE VIEW agent_tiers AS
SELECT
  a.btc_address,
  a.stx_address,
  CASE
    WHEN NOT EXISTS (
      SELECT 1 FROM claims c WHERE c.btc_address = a.btc_address AND c.status IN ('verified', 'rewarded')
    ) THEN 'registered'
    WHEN a.erc8004_agent_id IS NULL THEN 'genesis'
    ELSE 'eligible'
  END AS tier
FROM agents a;

-- A swap that counts, in the block that it was read from. It is replaced, never changed.
CREATE TABLE swaps (
  txid TEXT PRIMARY KEY NOT NULL
    CHECK (length(txid) = 66 AND txid GLOB '0x*' AND substr(txid, 3) NOT GLOB '*[^0-9a-f]*'),
  sender TEXT NOT NULL REFERENCES agents (stx_address),
  contract_id TEXT NOT NULL,
  function_name TEXT NOT NULL,
  token_in TEXT NOT NULL,
  amount_in TEXT NOT NULL
    CHECK (length(amount_in) BETWEEN 1 AND 40 AND amount_in NOT GLOB '*[^0-9]*' AND amount_in NOT GLOB '0*'),
  token_out TEXT NOT NULL CHECK (token_out <> token_in),
  amount_out TEXT NOT NULL
    CHECK (length(amount_out) BETWEEN 1 AND 40 AND amount_out NOT GLOB '*[^0-9]*' AND amount_out NOT GLOB '0*'),
  burn_block_time INTEGER NOT NULL, -- seconds, as on chain
  block_height INTEGER NOT NULL,
  block_hash TEXT NOT NULL,
  tx_index INTEGER NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('agent', 'cron', 'chainhook')),
  provider TEXT, -- who referred the trade, where the contract tells
  allowlist_version TEXT NOT NULL,
  recorded_at INTEGER NOT NULL
);

CREATE INDEX swaps_by_sender ON swaps (sender, burn_block_time, txid);
CREATE INDEX swaps_by_contract ON swaps (contract_id, block_height, tx_index);

-- Sums of each direction that a sender traded. An amount is four numbers of ten digits, least first: SQLite
-- adds numbers exactly and carries nothing, which leaves room for 900 million swaps in a row.
CREATE TABLE pair_totals (
  sender TEXT NOT NULL,
  token_in TEXT NOT NULL,
  token_out TEXT NOT NULL,
  trades INTEGER NOT NULL,
  in_0 INTEGER NOT NULL,
  in_1 INTEGER NOT NULL,
  in_2 INTEGER NOT NULL,
  in_3 INTEGER NOT NULL,
  out_0 INTEGER NOT NULL,
  out_1 INTEGER NOT NULL,
  out_2 INTEGER NOT NULL,
  out_3 INTEGER NOT NULL,
  PRIMARY KEY (sender, token_in, token_out)
) WITHOUT ROWID;

CREATE TABLE sender_totals (
  sender TEXT PRIMARY KEY NOT NULL,
  trades INTEGER NOT NULL,
  first_trade_at INTEGER NOT NULL, -- burn block time
  last_trade_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE token_totals (
  token TEXT PRIMARY KEY NOT NULL,
  trades INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER swap_counted AFTER INSERT ON swaps BEGIN
  INSERT INTO pair_totals VALUES (
    new.sender, new.token_in, new.token_out, 1,
    CAST(substr(new.amount_in, -10) AS INTEGER), CAST(substr(new.amount_in, -20, 10) AS INTEGER),
    CAST(substr(new.amount_in, -30, 10) AS INTEGER), CAST(substr(new.amount_in, -40, 10) AS INTEGER),
    CAST(substr(new.amount_out, -10) AS INTEGER), CAST(substr(new.amount_out, -20, 10) AS INTEGER),
    CAST(substr(new.amount_out, -30, 10) AS INTEGER), CAST(substr(new.amount_out, -40, 10) AS INTEGER)
  )
  ON CONFLICT (sender, token_in, token_out) DO UPDATE SET
    trades = trades + 1,
    in_0 = in_0 + excluded.in_0, in_1 = in_1 + excluded.in_1,
    in_2 = in_2 + excluded.in_2, in_3 = in_3 + excluded.in_3,
    out_0 = out_0 + excluded.out_0, out_1 = out_1 + excluded.out_1,
    out_2 = out_2 + excluded.out_2, out_3 = out_3 + excluded.out_3;
  INSERT INTO sender_totals VALUES (new.sender, 1, new.burn_block_time, new.burn_block_time)
  ON CONFLICT (sender) DO UPDATE SET
    trades = trades + 1,
    first_trade_at = min(first_trade_at, excluded.first_trade_at),
    last_trade_at = max(last_trade_at, excluded.last_trade_at);
  INSERT INTO token_totals VALUES (new.token_in, 1)
  ON CONFLICT (token) DO UPDATE SET trades = trades + 1;
  INSERT INTO token_totals VALUES (new.token_out, 1)
  ON CONFLICT (token) DO UPDATE SET trades = trades + 1;
END;

CREATE TRIGGER swap_uncounted AFTER DELETE ON swaps BEGIN
  UPDATE pair_totals SET
    trades = trades - 1,
    in_0 = in_0 - CAST(substr(old.amount_in, -10) AS INTEGER),
    in_1 = in_1 - CAST(substr(old.amount_in, -20, 10) AS INTEGER),
    in_2 = in_2 - CAST(substr(old.amount_in, -30, 10) AS INTEGER),
    in_3 = in_3 - CAST(substr(old.amount_in, -40, 10) AS INTEGER),
    out_0 = out_0 - CAST(substr(old.amount_out, -10) AS INTEGER),
    out_1 = out_1 - CAST(substr(old.amount_out, -20, 10) AS INTEGER),
    out_2 = out_2 - CAST(substr(old.amount_out, -30, 10) AS INTEGER),
    out_3 = out_3 - CAST(substr(old.amount_out, -40, 10) AS INTEGER)
  WHERE sender = old.sender AND token_in = old.token_in AND token_out = old.token_out;
  DELETE FROM pair_totals
  WHERE sender = old.sender AND token_in = old.token_in AND token_out = old.token_out AND trades = 0;
  DELETE FROM sender_totals WHERE sender = old.sender AND trades = 1;
  UPDATE sender_totals SET
    trades = trades - 1,
    first_trade_at = (SELECT min(burn_block_time) FROM swaps WHERE sender = old.sender),
    last_trade_at = (SELECT max(burn_block_time) FROM swaps WHERE sender = old.sender)
  WHERE sender = old.sender;
  UPDATE token_totals SET trades = trades - 1 WHERE token IN (old.token_in, old.token_out);
  DELETE FROM token_totals WHERE token IN (old.token_in, old.token_out) AND trades = 0;
END;

CREATE TRIGGER swap_unchanged BEFORE UPDATE ON swaps BEGIN
  SELECT RAISE(ABORT, 'a swap is replaced (delete, insert), never changed: its totals would not follow');
END;

-- What the totals must be, counted from the swaps themselves: to compare with, and to rebuild from.
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
FROM swaps GROUP BY sender, token_in, token_out;

CREATE VIEW sender_totals_recounted AS
SELECT sender, count(*) AS trades, min(burn_block_time) AS first_trade_at, max(burn_block_time) AS last_trade_at
FROM swaps GROUP BY sender;

CREATE VIEW token_totals_recounted AS
SELECT token, count(*) AS trades
FROM (SELECT token_in AS token FROM swaps UNION ALL SELECT token_out FROM swaps) GROUP BY token;

-- A transaction that was looked at and does not count, with what is needed to look at it anew when the rules change.
CREATE TABLE refusals (
  txid TEXT PRIMARY KEY NOT NULL,
  code TEXT NOT NULL,
  reason TEXT NOT NULL,
  sender TEXT NOT NULL,
  contract_id TEXT,
  function_name TEXT,
  burn_block_time INTEGER NOT NULL,
  block_height INTEGER NOT NULL,
  block_hash TEXT NOT NULL,
  legs_json TEXT, -- net amount per asset, where it was the legs that did not make a swap
  source TEXT NOT NULL CHECK (source IN ('agent', 'cron', 'chainhook')),
  allowlist_version TEXT NOT NULL,
  refused_at INTEGER NOT NULL
);

CREATE INDEX refusals_by_code ON refusals (code, sender);

-- Transactions that are still to be settled: found and not yet verified, pending, or no longer seen on chain.
CREATE TABLE candidates (
  txid TEXT PRIMARY KEY NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('agent', 'cron', 'chainhook')),
  attempts INTEGER NOT NULL DEFAULT 0,
  added_at INTEGER NOT NULL,
  due_at INTEGER NOT NULL
);

CREATE INDEX candidates_by_due ON candidates (due_at);

-- How far the list of a contract or wallet has been read. Everything up to the anchor, a transaction in its block,
-- is done; the gap is a walk under way: its top, and the cursor down to which everything is done.
CREATE TABLE marks (
  principal TEXT PRIMARY KEY NOT NULL,
  rules TEXT NOT NULL, -- what was looked for; other rules make the mark void
  anchor_json TEXT,
  gap_json TEXT,
  walked_at INTEGER, -- when the list was last read to its end or down to the anchor
  failures INTEGER NOT NULL DEFAULT 0 -- visits in a row that failed
);

CREATE TABLE competition_state (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  updated_at INTEGER NOT NULL
);
