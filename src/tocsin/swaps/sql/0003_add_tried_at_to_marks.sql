-- When a list was last asked for. Lists are read in this order, so that none is left behind when calls are few.
ALTER TABLE marks ADD COLUMN tried_at INTEGER;
