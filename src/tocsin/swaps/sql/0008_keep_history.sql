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

INSERT INTO swaps_to_value SELECT burn_block_time * 1000, txid FROM swaps;
