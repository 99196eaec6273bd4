-- Agents may propose changes of what only a person changes: each proposal is a row. The agents that are there have none.
-- least: 87

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
