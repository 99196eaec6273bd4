-- How often a text, or what a conversation said, could not be extracted is kept over restarts. So far nothing has failed.
-- least: 82

ALTER TABLE episodes ADD COLUMN tries BIGINT NOT NULL DEFAULT 0;
ALTER TABLE extractions ADD COLUMN tries BIGINT NOT NULL DEFAULT 0;
