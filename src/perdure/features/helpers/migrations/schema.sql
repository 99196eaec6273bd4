-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

CREATE TABLE helpers (
    agent_id TEXT NOT NULL,
    name TEXT NOT NULL,
    helper_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (agent_id, name)
) {clustered};
