-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

CREATE TABLE memory_histories (
    agent_id TEXT NOT NULL,
    generation BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    head TEXT NOT NULL,
    entries TEXT NOT NULL,
    forgotten TEXT NOT NULL,
    PRIMARY KEY (agent_id, generation)
);
CREATE TABLE memory_packs (
    agent_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    pack {blob} NOT NULL,
    pack_index {blob} NOT NULL,
    PRIMARY KEY (agent_id, seq)
);
CREATE TABLE memory_commits (
    agent_id TEXT NOT NULL,
    thing TEXT NOT NULL,
    version BIGINT NOT NULL,
    hash TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (agent_id, thing, version)
);
CREATE TABLE memory_files (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    path TEXT NOT NULL,
    text TEXT NOT NULL,
    changed_at TEXT NOT NULL,
    author_id TEXT NOT NULL,
    PRIMARY KEY (agent_id, number)
);
