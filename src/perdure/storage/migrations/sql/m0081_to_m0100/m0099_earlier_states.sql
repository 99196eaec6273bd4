-- What an agent was before its settings or tools changed is kept, from now on; and which messages a restore has hidden.
-- least: 98

CREATE TABLE agent_revisions (
    agent_id TEXT NOT NULL,
    revision BIGINT NOT NULL,
    agent_type TEXT NOT NULL,
    model TEXT NOT NULL,
    follows_default SMALLINT NOT NULL,
    timezone TEXT NOT NULL,
    system TEXT,
    settings TEXT NOT NULL,
    tool_ids TEXT NOT NULL,
    PRIMARY KEY (agent_id, revision)
) {clustered};
CREATE TABLE view_gaps (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    from_seq BIGINT NOT NULL,
    since_revision BIGINT NOT NULL,
    upto_seq BIGINT NOT NULL,
    from_node BIGINT NOT NULL,
    upto_node BIGINT NOT NULL,
    until_revision BIGINT,
    PRIMARY KEY (agent_id, conversation_seq, from_seq, since_revision)
) {clustered};
