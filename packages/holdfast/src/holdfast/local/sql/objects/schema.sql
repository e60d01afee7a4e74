-- The schema that the migrations in this directory produce. A test compares the two.
CREATE TABLE entries (
  object TEXT NOT NULL,
  key    TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (object, key)
) WITHOUT ROWID;

CREATE TABLE alarms (
  object       TEXT PRIMARY KEY,
  namespace    TEXT NOT NULL,
  name         TEXT,
  scheduled_at INTEGER NOT NULL,
  due_at       INTEGER NOT NULL,
  decided_at   INTEGER NOT NULL,
  generation   INTEGER NOT NULL,
  retry_count  INTEGER NOT NULL,
  backoff      INTEGER NOT NULL,
  last_failure_counted INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sql_files (
  number INTEGER PRIMARY KEY,
  object TEXT NOT NULL UNIQUE
);

CREATE TABLE sql_pages (
  place   INTEGER PRIMARY KEY,
  content BLOB NOT NULL
);
