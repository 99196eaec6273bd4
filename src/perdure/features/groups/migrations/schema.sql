-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

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
CREATE TABLE group_agents (
    group_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    conversation_seq BIGINT,
    PRIMARY KEY (group_id, agent_id)
) {clustered};
CREATE INDEX group_agents_by_agent ON group_agents (agent_id, group_id);
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
CREATE TABLE group_turns (
    group_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    status TEXT NOT NULL,
    stop_reason TEXT,
    failure TEXT,
    input TEXT,
    plan TEXT,
    hops BIGINT NOT NULL,
    max_steps BIGINT,
    usage TEXT NOT NULL,
    step_count BIGINT NOT NULL,
    cost_usd DOUBLE PRECISION,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    lease_owner TEXT,
    lease_number BIGINT NOT NULL DEFAULT 0,
    lease_until TEXT,
    idempotency_key TEXT,
    digest TEXT NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT,
    ended_at TEXT,
    PRIMARY KEY (group_id, seq)
) {clustered};
CREATE INDEX group_turns_unended ON group_turns (created_at, group_id, seq) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX group_turns_by_key ON group_turns (group_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE TABLE group_messages (
    group_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    turn_seq BIGINT NOT NULL,
    place BIGINT NOT NULL,
    kind TEXT NOT NULL,
    sender_id TEXT,
    sender_name TEXT NOT NULL,
    run_id TEXT,
    message_id TEXT,
    message_seq BIGINT,
    parts TEXT,
    chosen_id TEXT,
    ends_turn INTEGER NOT NULL,
    seen_seq BIGINT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (group_id, seq)
) {clustered};
CREATE INDEX group_messages_by_turn ON group_messages (group_id, turn_seq, seq);
CREATE INDEX group_messages_by_sender ON group_messages (group_id, sender_id, seq);
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
