-- A result that was computed before the grace of its round is over. What it was computed from is in the tables of
-- captured rounds, its file in the table of files; nobody sees them before the round is finalized.
CREATE TABLE competition_round_preparations (
  round_id TEXT PRIMARY KEY NOT NULL REFERENCES competition_rounds (round_id),
  version INTEGER NOT NULL, -- of the result
  attempts INTEGER NOT NULL, -- how often it was begun
  begun_at TEXT NOT NULL,
  -- outdated: a swap of the round has come, gone or moved since. captured: the round was captured with these swaps.
  state TEXT NOT NULL CHECK (state IN ('begun', 'ready', 'outdated', 'captured')),
  starts_at INTEGER NOT NULL, -- of the round, as the next one
  ends_at INTEGER NOT NULL,
  tokens_json TEXT, -- all that were traded in the round; set when it is ready, as the next one
  basis TEXT -- release, and digest of everything but the swaps that it was computed from
) WITHOUT ROWID;

-- The results, prizes and flags of a preparation, as JSON, in parts: D1 bounds the size of a row.
CREATE TABLE competition_round_prepared_outcomes (
  round_id TEXT NOT NULL REFERENCES competition_rounds (round_id),
  part INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (round_id, part)
);

CREATE TRIGGER swap_came_after_preparation AFTER INSERT ON swaps BEGIN
  UPDATE competition_round_preparations SET state = 'outdated'
  WHERE state IN ('begun', 'ready') AND starts_at <= new.burn_block_time AND ends_at > new.burn_block_time;
END;

CREATE TRIGGER swap_went_after_preparation AFTER DELETE ON swaps BEGIN
  UPDATE competition_round_preparations SET state = 'outdated'
  WHERE state IN ('begun', 'ready') AND starts_at <= old.burn_block_time AND ends_at > old.burn_block_time;
END;
