-- Runs may belong to a batch. Those of before belong to none, so the index of a batch's runs begins empty.

CREATE TABLE batches (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    created_at TEXT NOT NULL,
    callback TEXT,
    callback_due_at TEXT
);
CREATE INDEX batches_by_time ON batches (org_id, created_at, number);
CREATE INDEX batches_callback_due ON batches (callback_due_at) WHERE callback_due_at IS NOT NULL;
ALTER TABLE runs ADD COLUMN batch_id TEXT;
CREATE INDEX runs_by_batch ON runs (batch_id, status) WHERE batch_id IS NOT NULL;
