-- The passes of companions: which messages of an agent each of them reads, and how it ended. There were none.

CREATE TABLE companion_passes (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    group_id TEXT NOT NULL,
    companion_id TEXT NOT NULL,
    cause TEXT NOT NULL,
    from_seq BIGINT NOT NULL,
    upto_seq BIGINT NOT NULL,
    last_message_id TEXT NOT NULL,
    upto_run_seq BIGINT NOT NULL,
    is_full INTEGER NOT NULL,
    failures BIGINT NOT NULL,
    run_id TEXT NOT NULL,
    outcome TEXT,
    created_at TEXT NOT NULL,
    ended_at TEXT,
    PRIMARY KEY (agent_id, number)
) {clustered};
CREATE INDEX companion_passes_unended ON companion_passes (created_at) WHERE ended_at IS NULL;
CREATE INDEX companion_passes_by_run ON companion_passes (run_id);
