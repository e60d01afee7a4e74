-- What the migrations beside this file add up to; a test compares.
CREATE TABLE entries (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  expires_at INTEGER
);

CREATE INDEX entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL;
