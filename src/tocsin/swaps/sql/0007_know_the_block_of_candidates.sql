-- The block in which a list showed a candidate: below it the record is complete. 0: it may be in any block. NULL: in none.
ALTER TABLE candidates ADD COLUMN block_height INTEGER;
UPDATE candidates SET block_height = 0 WHERE rank = 0;
CREATE INDEX candidates_by_block ON candidates (block_height) WHERE block_height IS NOT NULL;
