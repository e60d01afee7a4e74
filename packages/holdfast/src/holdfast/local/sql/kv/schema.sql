-- The schema that the migrations in this directory produce. A test compares the two.
CREATE TABLE entries (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  expires_at INTEGER
);

CREATE INDEX entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL;
