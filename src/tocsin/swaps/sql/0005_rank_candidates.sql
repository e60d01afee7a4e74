-- Who named a candidate: 0 the lists that we read, 1 an agent, 2 a push. Lower ranks are verified first.
ALTER TABLE candidates ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
UPDATE candidates SET rank = CASE source WHEN 'agent' THEN 1 WHEN 'chainhook' THEN 2 ELSE 0 END;

DROP INDEX candidates_by_due;
CREATE INDEX candidates_by_rank ON candidates (rank, due_at, txid);
