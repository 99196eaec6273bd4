-- Groups of agents: who belongs to one, and which blocks its agents have because of it. There were none.

CREATE TABLE groups (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    description TEXT NOT NULL,
    manager_agent_id TEXT,
    termination_token TEXT,
    max_turns BIGINT,
    max_tokens BIGINT,
    max_cost_usd DOUBLE PRECISION,
    frequency BIGINT,
    max_message_buffer_length BIGINT,
    min_message_buffer_length BIGINT,
    last_message_id TEXT,
    project_id TEXT,
    hidden INTEGER NOT NULL DEFAULT 0,
    turn_seq BIGINT NOT NULL DEFAULT 0,
    message_seq BIGINT NOT NULL DEFAULT 0,
    begins_at BIGINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
CREATE INDEX groups_by_org ON groups (org_id, number);
CREATE INDEX groups_by_manager ON groups (manager_agent_id) WHERE manager_agent_id IS NOT NULL;
-- The manager has position -1.
CREATE TABLE group_agents (
    group_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    conversation_seq BIGINT,
    PRIMARY KEY (group_id, agent_id)
) {clustered};
CREATE INDEX group_agents_by_agent ON group_agents (agent_id, group_id);
-- `attached`: the agent has the block because of a group, not on its own.
CREATE TABLE group_blocks (
    group_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    block_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    attached INTEGER NOT NULL,
    PRIMARY KEY (group_id, agent_id, block_id)
) {clustered};
CREATE INDEX group_blocks_by_agent ON group_blocks (agent_id, block_id);
CREATE INDEX group_blocks_by_block ON group_blocks (block_id);
