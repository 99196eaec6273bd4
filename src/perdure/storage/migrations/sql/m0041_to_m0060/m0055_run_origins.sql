-- The run that a message between agents goes back to: how many runs one has led to is limited.
ALTER TABLE runs ADD COLUMN origin_id TEXT;
CREATE INDEX runs_by_origin ON runs (origin_id) WHERE origin_id IS NOT NULL;
