-- Users, API keys and the audit log: the directory, which is read by an id or a digest before anybody knows the
-- organisation, and holds nothing of memory. Stores that had migration 61 when it made these tables have them already.
-- least: 60

CREATE TABLE IF NOT EXISTS users (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    name TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE INDEX IF NOT EXISTS users_by_org ON users (org_id, number);
CREATE TABLE IF NOT EXISTS api_keys (
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
CREATE INDEX IF NOT EXISTS api_keys_by_org ON api_keys (org_id, number);
CREATE TABLE IF NOT EXISTS audit_entries (
    seq {row_key} PRIMARY KEY,
    org_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    user_id TEXT,
    key_id TEXT,
    action TEXT NOT NULL,
    object_id TEXT NOT NULL,
    trace_id TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS audit_entries_by_org ON audit_entries (org_id, seq);
