-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

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
