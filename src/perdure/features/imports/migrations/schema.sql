-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

CREATE TABLE imported (
    agent_id TEXT NOT NULL,
    id TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (agent_id, id)
) {clustered};
