-- Each helper that an agent has called is a hidden agent. The agents that are there have none.
-- least: 87

CREATE TABLE helpers (
    agent_id TEXT NOT NULL,
    name TEXT NOT NULL,
    helper_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (agent_id, name)
) {clustered};
