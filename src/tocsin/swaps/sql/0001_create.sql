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
  block_time INTEGER, -- seconds, of the Stacks block; NULL: not known
  block_height INTEGER NOT NULL,
  block_hash TEXT NOT NULL,
  tx_index INTEGER NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('agent', 'cron', 'chainhook')),
  provider TEXT, -- who referred the trade, where the contract tells
  allowlist_version TEXT NOT NULL,
  recorded_at INTEGER NOT NULL,
  -- What moved, net and exact, in the form that the site has: {legsOut: [{asset_id, amount, fee?}], legsIn, provider?}.
  raw_event_json TEXT,
  -- The site's other columns. Only what succeeded is recorded, and nothing is scored.
  tx_status TEXT NOT NULL DEFAULT 'success' CHECK (tx_status = 'success'),
  scored_value INTEGER CHECK (scored_value IS NULL),
  scored_at INTEGER CHECK (scored_at IS NULL)
);

CREATE INDEX swaps_by_sender ON swaps (sender, burn_block_time, txid);
CREATE INDEX swaps_by_contract ON swaps (contract_id, block_height, tx_index);
CREATE INDEX swaps_by_position ON swaps (block_height, tx_index);

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
FROM swaps WHERE txid NOT IN (SELECT txid FROM excess_swaps) GROUP BY sender, token_in, token_out;

CREATE VIEW sender_totals_recounted AS
SELECT sender, count(*) AS trades, min(burn_block_time) AS first_trade_at, max(burn_block_time) AS last_trade_at
FROM swaps GROUP BY sender;

CREATE VIEW token_totals_recounted AS
SELECT token, count(*) AS trades
FROM (SELECT token_in AS token FROM swaps UNION ALL SELECT token_out FROM swaps) GROUP BY token;

-- The site's table of this name, as a view: exact at any time, because triggers keep the totals.
CREATE VIEW agent_swap_stats AS
SELECT
  t.sender AS stx_address, t.trades AS trade_count, t.trades AS verified_count, t.first_trade_at, t.last_trade_at,
  (SELECT max(s.recorded_at) / 1000 FROM swaps s WHERE s.sender = t.sender) AS updated_at
FROM sender_totals t;

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
-- What was refused of late, by reason, is counted whenever an operator looks: by the index alone.
CREATE INDEX refusals_by_time ON refusals (refused_at, code);
-- What was refused of an agent, newest first, is asked for by the agent.
CREATE INDEX refusals_by_sender ON refusals (sender, refused_at);

-- Transactions that are still to be settled: found and not yet verified, pending, or no longer seen on chain.
CREATE TABLE candidates (
  txid TEXT PRIMARY KEY NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('agent', 'cron', 'chainhook')),
  attempts INTEGER NOT NULL DEFAULT 0,
  added_at INTEGER NOT NULL,
  due_at INTEGER NOT NULL,
  rank INTEGER NOT NULL DEFAULT 0, -- who named it: 0 the lists that we read, 1 an agent, 2 a push; lower ones first
  block_height INTEGER -- in which a list showed it; 0: it may be in any; NULL: in none
);

CREATE INDEX candidates_by_rank ON candidates (rank, due_at, txid);
CREATE INDEX candidates_by_block ON candidates (block_height) WHERE block_height IS NOT NULL;

-- How far the list of a contract or wallet was read.
CREATE TABLE marks (
  principal TEXT PRIMARY KEY NOT NULL,
  rules TEXT NOT NULL, -- what was looked for; other rules make the mark void
  position_json TEXT, -- {anchors: [{txid, block_hash, height, tx_index}], gaps: [{cursor, bottom}]}
  looked_at INTEGER, -- when its head was last read
  walked_at INTEGER, -- when the newest reading that came to its end or down to the anchor began
  failures INTEGER NOT NULL DEFAULT 0, -- visits in a row that failed
  tried_at INTEGER -- when the list was last asked for
);

-- The nonces that were seen of each eligible wallet; more than one range means that a list left something out.
CREATE TABLE nonces (
  wallet TEXT PRIMARY KEY NOT NULL,
  ranges_json TEXT NOT NULL, -- [[low, high, block of the high one], …]
  missing INTEGER NOT NULL,
  missing_above INTEGER -- the block above which the first missing one is
) WITHOUT ROWID;

CREATE INDEX nonces_missing ON nonces (wallet) WHERE missing > 0;

CREATE TABLE competition_state (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  updated_at INTEGER NOT NULL
);

-- Prices as they were accepted, one row for each token and refresh. Nothing fills the gaps between them.
CREATE TABLE price_tokens (
  id INTEGER PRIMARY KEY,
  token TEXT NOT NULL UNIQUE
);

CREATE TABLE price_points (
  token INTEGER NOT NULL REFERENCES price_tokens (id),
  at INTEGER NOT NULL, -- unix ms
  price_usd TEXT, -- an exact decimal number; NULL: the source has no price
  decimals INTEGER,
  source TEXT NOT NULL,
  liquidity_usd TEXT, -- of all pools; NULL: the source did not tell
  volume_usd TEXT, -- of the last day
  PRIMARY KEY (token, at)
) WITHOUT ROWID;

-- What each swap was worth when it was made, in millionths of a dollar. NULL: not known.
CREATE TABLE swap_values (
  txid TEXT PRIMARY KEY NOT NULL,
  sender TEXT NOT NULL,
  given_micros INTEGER,
  received_micros INTEGER
) WITHOUT ROWID;

-- Swaps that are still to be valued. One that is gone or was valued meanwhile may be named here: it is passed over.
CREATE TABLE swaps_to_value (
  due_at INTEGER NOT NULL, -- unix ms
  txid TEXT NOT NULL,
  PRIMARY KEY (due_at, txid)
) WITHOUT ROWID;

-- Sums of the swaps of which both sides are known, and how many there are.
CREATE TABLE sender_values (
  sender TEXT PRIMARY KEY NOT NULL,
  valued INTEGER NOT NULL,
  given_micros INTEGER NOT NULL,
  received_micros INTEGER NOT NULL
) WITHOUT ROWID;

CREATE VIEW sender_values_recounted AS
SELECT sender, count(*) AS valued, sum(given_micros) AS given_micros, sum(received_micros) AS received_micros
FROM swap_values WHERE given_micros IS NOT NULL AND received_micros IS NOT NULL GROUP BY sender;

CREATE TRIGGER value_counted AFTER INSERT ON swap_values
WHEN new.given_micros IS NOT NULL AND new.received_micros IS NOT NULL BEGIN
  INSERT INTO sender_values VALUES (new.sender, 1, new.given_micros, new.received_micros)
  ON CONFLICT (sender) DO UPDATE SET
    valued = valued + 1,
    given_micros = given_micros + excluded.given_micros,
    received_micros = received_micros + excluded.received_micros;
END;

CREATE TRIGGER value_uncounted AFTER DELETE ON swap_values
WHEN old.given_micros IS NOT NULL AND old.received_micros IS NOT NULL BEGIN
  DELETE FROM sender_values WHERE sender = old.sender AND valued = 1;
  UPDATE sender_values SET
    valued = valued - 1,
    given_micros = given_micros - old.given_micros,
    received_micros = received_micros - old.received_micros
  WHERE sender = old.sender;
END;

CREATE TRIGGER value_unchanged BEFORE UPDATE ON swap_values BEGIN
  SELECT RAISE(ABORT, 'a value is replaced (delete, insert), never changed: its totals would not follow');
END;

-- The capital that each agent used: of each token the net amount given, and the most that it ever was, over the swaps
-- up to a position. `left_out` are tokens that do not count: swaps with one of them are left out.
CREATE TABLE outlays (
  agent_id INTEGER PRIMARY KEY NOT NULL, -- erc8004_agent_id
  wallets TEXT NOT NULL, -- sorted, with spaces between
  left_out TEXT NOT NULL,
  peaks TEXT NOT NULL, -- JSON: amounts by token, of any size
  net TEXT NOT NULL,
  block_height INTEGER NOT NULL,
  tx_index INTEGER NOT NULL,
  txid TEXT NOT NULL,
  is_complete INTEGER NOT NULL, -- 0: there are more swaps to read
  version INTEGER NOT NULL -- grows with each write
);

-- Whose swaps changed since their outlays were read, how often, and from which position on.
CREATE TABLE outlays_due (
  sender TEXT PRIMARY KEY NOT NULL,
  changes INTEGER NOT NULL,
  block_height INTEGER NOT NULL,
  tx_index INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX swaps_in_order ON swaps (sender, block_height, tx_index);

CREATE TRIGGER swap_followed AFTER INSERT ON swaps BEGIN
  INSERT INTO swaps_to_value VALUES (new.burn_block_time * 1000, new.txid) ON CONFLICT DO NOTHING;
  INSERT INTO outlays_due VALUES (new.sender, 1, new.block_height, new.tx_index)
  ON CONFLICT (sender) DO UPDATE SET
    changes = changes + 1,
    tx_index = iif((excluded.block_height, excluded.tx_index) < (block_height, tx_index), excluded.tx_index, tx_index),
    block_height = min(block_height, excluded.block_height);
END;

CREATE TRIGGER swap_unfollowed AFTER DELETE ON swaps BEGIN
  DELETE FROM swap_values WHERE txid = old.txid;
  INSERT INTO outlays_due VALUES (old.sender, 1, old.block_height, old.tx_index)
  ON CONFLICT (sender) DO UPDATE SET
    changes = changes + 1,
    tx_index = iif((excluded.block_height, excluded.tx_index) < (block_height, tx_index), excluded.tx_index, tx_index),
    block_height = min(block_height, excluded.block_height);
END;

-- The board hour by hour: one row for each agent and UTC day. A point is [minute of the day, rank, trades, volume,
-- P&L, P&L at the time of the trades], USD in cents; an hour without one is a gap.
CREATE TABLE agent_days (
  day INTEGER NOT NULL, -- since 1970-01-01
  agent_id INTEGER NOT NULL, -- erc8004_agent_id
  last_hour INTEGER NOT NULL, -- of the newest point
  last_point TEXT NOT NULL, -- JSON
  points TEXT NOT NULL, -- JSON, without the outer brackets
  PRIMARY KEY (day, agent_id)
) WITHOUT ROWID;

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

-- What changed, in the order in which it was written: for those who watch. Numbers are never used again.
CREATE TABLE news (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('counted', 'withdrawn', 'refused')),
  txid TEXT NOT NULL,
  sender TEXT NOT NULL
);

CREATE TRIGGER news_of_swap AFTER INSERT ON swaps BEGIN
  INSERT INTO news (kind, txid, sender) VALUES ('counted', new.txid, new.sender);
END;

CREATE TRIGGER news_of_withdrawal AFTER DELETE ON swaps BEGIN
  INSERT INTO news (kind, txid, sender) VALUES ('withdrawn', old.txid, old.sender);
END;

CREATE TRIGGER news_of_refusal AFTER INSERT ON refusals BEGIN
  INSERT INTO news (kind, txid, sender) VALUES ('refused', new.txid, new.sender);
END;
-- Who sent each eligible wallet its first STX, from lists that are read anyway.
CREATE TABLE funders (
  wallet TEXT PRIMARY KEY NOT NULL,
  funder TEXT, -- NULL: nobody was seen
  funder_nonce INTEGER, -- how many transactions the funder had made before
  block_height INTEGER NOT NULL, -- of the transaction; far in the future where nobody was seen
  tx_index INTEGER NOT NULL,
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)) -- 1: the wallet's list was read to its end, so nobody was earlier
) WITHOUT ROWID;

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
