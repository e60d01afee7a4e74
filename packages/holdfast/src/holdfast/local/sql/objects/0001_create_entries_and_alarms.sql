-- What all objects have put, by object and key. Text keys compare by their UTF-8 bytes, the order of list().
CREATE TABLE entries (
  object TEXT NOT NULL,
  key    TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (object, key)
) WITHOUT ROWID;

-- At most one alarm per object; namespace and name are what its object is built from when it rings.
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
