-- Corrections that can be undone, and texts that are being erased. Older stores have none.
CREATE TABLE corrections (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    items BIGINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    undone_at TEXT,
    PRIMARY KEY (agent_id, number)
) {clustered};
CREATE TABLE correction_items (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    before TEXT NOT NULL,
    after BIGINT,
    PRIMARY KEY (agent_id, number, seq)
) {clustered};
CREATE TABLE erasures (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    text TEXT NOT NULL,
    targets TEXT NOT NULL,
    target BIGINT NOT NULL,
    after TEXT,
    changed BIGINT NOT NULL,
    passes BIGINT NOT NULL,
    counts TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    ended_at TEXT,
    PRIMARY KEY (agent_id, number)
) {clustered};
CREATE INDEX erasures_unended ON erasures (updated_at) WHERE ended_at IS NULL;
