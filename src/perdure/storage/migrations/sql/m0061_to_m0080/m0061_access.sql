-- Users, API keys, the audit log, and what keys and agents have used. The rows that are there belong to the default
-- organisation, which gets a row of its own. These tables are the directory: they are read by an id or a digest before
-- anybody knows the organisation, and hold nothing of memory.
-- least: 60

ALTER TABLE organisations ADD COLUMN deleted_at TEXT;
ALTER TABLE organisations ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
INSERT INTO organisations (id, name, created_at)
SELECT 'org-00000000-0000-4000-8000-000000000000', 'default',
    COALESCE((SELECT MIN(applied_at) FROM schema_migrations), '2026-01-01T00:00:00.000000+00:00')
WHERE NOT EXISTS (SELECT 1 FROM organisations WHERE id = 'org-00000000-0000-4000-8000-000000000000');
CREATE TABLE users (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    name TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE INDEX users_by_org ON users (org_id, number);
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    user_id TEXT,
    name TEXT NOT NULL,
    start TEXT NOT NULL,
    digest TEXT NOT NULL UNIQUE,
    scope TEXT NOT NULL,
    limits TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    last_used_at TEXT,
    revoked_at TEXT
);
CREATE INDEX api_keys_by_org ON api_keys (org_id, number);
CREATE TABLE audit_entries (
    seq {row_key} PRIMARY KEY,
    org_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    user_id TEXT,
    key_id TEXT,
    action TEXT NOT NULL,
    object_id TEXT NOT NULL,
    trace_id TEXT NOT NULL
);
CREATE INDEX audit_entries_by_org ON audit_entries (org_id, seq);
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
