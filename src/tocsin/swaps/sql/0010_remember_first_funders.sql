-- Who sent each eligible wallet its first STX, from lists that are read anyway.
CREATE TABLE funders (
  wallet TEXT PRIMARY KEY NOT NULL,
  funder TEXT, -- NULL: nobody was seen
  funder_nonce INTEGER, -- how many transactions the funder had made before
  block_height INTEGER NOT NULL, -- of the transaction; far in the future where nobody was seen
  tx_index INTEGER NOT NULL,
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)) -- 1: the wallet's list was read to its end, so nobody was earlier
) WITHOUT ROWID;
