-- One row per key. Text keys compare by their UTF-8 bytes, which is the order that KV lists them in.
CREATE TABLE entries (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  expires_at INTEGER -- unix milliseconds; NULL: never
);

-- Finds what has expired without reading what has not.
CREATE INDEX entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL;
