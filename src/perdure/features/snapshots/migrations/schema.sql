-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

CREATE TABLE snapshots (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    reason TEXT NOT NULL,
    body TEXT NOT NULL,
    note TEXT NOT NULL,
    created_by TEXT,
    created_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, number)
) {clustered};
