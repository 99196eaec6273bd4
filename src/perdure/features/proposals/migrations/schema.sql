-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

CREATE TABLE proposals (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    target_id TEXT NOT NULL,
    label TEXT NOT NULL,
    base_checksum BIGINT NOT NULL,
    base_version BIGINT NOT NULL,
    new_value TEXT NOT NULL,
    diff TEXT NOT NULL,
    change_digest TEXT NOT NULL,
    reason TEXT NOT NULL,
    evidence TEXT NOT NULL,
    state TEXT NOT NULL,
    proposer_id TEXT NOT NULL,
    run_id TEXT,
    message_id TEXT,
    created_at TEXT NOT NULL,
    decided_at TEXT,
    decided_by TEXT,
    decision TEXT NOT NULL,
    version BIGINT,
    PRIMARY KEY (agent_id, number)
);
CREATE INDEX open_proposals ON proposals (created_at) WHERE state = 'open';
