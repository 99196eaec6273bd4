-- The sources of writes of memory by agents, a row for each source of a write. A write without a row is by a person, or
-- older than this table: its label follows from its author.
-- least: 55

CREATE TABLE memory_sources (
    owner_id TEXT NOT NULL,
    ref TEXT NOT NULL,
    place BIGINT NOT NULL,
    kind TEXT NOT NULL,
    label TEXT NOT NULL,
    name TEXT NOT NULL,
    message_ids TEXT NOT NULL,
    agent_id TEXT,
    run_id TEXT,
    message_id TEXT,
    created_at TEXT NOT NULL,
    reverted_by TEXT,
    PRIMARY KEY (owner_id, ref, place)
) {clustered};
CREATE INDEX memory_sources_by_source ON memory_sources (owner_id, label, name);
CREATE INDEX memory_sources_by_run ON memory_sources (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX memory_sources_by_revert ON memory_sources (reverted_by) WHERE reverted_by IS NOT NULL;
