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
