-- Organisations, and what keys and agents have used. The rows that are there belong to the default organisation, which
-- gets a row of its own.
-- least: 60

ALTER TABLE organisations ADD COLUMN deleted_at TEXT;
ALTER TABLE organisations ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
INSERT INTO organisations (id, name, created_at)
SELECT 'org-00000000-0000-4000-8000-000000000000', 'default',
    COALESCE((SELECT MIN(applied_at) FROM schema_migrations), '2026-01-01T00:00:00.000000+00:00')
WHERE NOT EXISTS (SELECT 1 FROM organisations WHERE id = 'org-00000000-0000-4000-8000-000000000000');
INSERT INTO counters (name, value) VALUES ('directory', 0);
CREATE TABLE used (
    org_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    period TEXT NOT NULL,
    requests BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (owner_id, period)
) {clustered};
CREATE INDEX used_by_period ON used (period);
