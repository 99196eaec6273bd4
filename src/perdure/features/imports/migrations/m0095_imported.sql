-- What imports have brought is noted, so that what a person deletes is not brought again.
-- least: 87

CREATE TABLE imported (
    agent_id TEXT NOT NULL,
    id TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (agent_id, id)
) {clustered};
