-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

CREATE TABLE skills (
    agent_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    name TEXT NOT NULL,
    layer TEXT NOT NULL,
    description TEXT NOT NULL,
    text TEXT NOT NULL,
    version BIGINT NOT NULL,
    is_protected BIGINT NOT NULL,
    archived_at TEXT,
    fresh_at TEXT NOT NULL,
    created_at TEXT NOT NULL,
    changed_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, seq)
);
CREATE INDEX skills_by_name ON skills (agent_id, name);
CREATE TABLE skill_versions (
    agent_id TEXT NOT NULL,
    skill_seq BIGINT NOT NULL,
    version BIGINT NOT NULL,
    description TEXT NOT NULL,
    text TEXT NOT NULL,
    written_by TEXT NOT NULL,
    run_id TEXT,
    evidence TEXT NOT NULL,
    evidence_id TEXT,
    sources TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, skill_seq, version)
);
CREATE TABLE skill_uses (
    agent_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    name TEXT NOT NULL,
    run_seq BIGINT NOT NULL,
    used_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, seq)
);
