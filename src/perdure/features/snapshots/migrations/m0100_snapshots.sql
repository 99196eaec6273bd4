-- Snapshots of agents are kept by references to what the log has; there are none yet.
-- least: 99

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
