-- The first schema.
--
-- Keys: a root row has `org_id`. Children of an agent are keyed `(agent_id, seq)`; messages, conversations, runs and
-- prefixes have a counter each on the agent's row, advanced in the transaction of the insert. Steps and events are
-- numbered within their run, passages within their archive. `ids` leads from an id to its owner (the agent; for a
-- passage, its archive) and number (for a step, that of its run), so every large table can be partitioned by owner.
--
-- The agent's row is written with every message, so it is narrow: texts of any length stand in `agent_details`. Times
-- are ISO 8601 text in UTC with microseconds: they sort as text. JSON stands in text columns.
--
-- full text: message_words
-- full text: passage_words

CREATE TABLE organisations (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_at TEXT NOT NULL
);
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
CREATE TABLE ids (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    seq BIGINT NOT NULL
) {clustered};
CREATE TABLE agents (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    agent_type TEXT NOT NULL,
    model TEXT NOT NULL,
    timezone TEXT NOT NULL,
    settings_revision BIGINT NOT NULL DEFAULT 0,
    hidden SMALLINT NOT NULL DEFAULT 0,
    message_seq BIGINT NOT NULL DEFAULT 0,
    message_count BIGINT NOT NULL DEFAULT 0,
    conversation_seq BIGINT NOT NULL DEFAULT 0,
    run_seq BIGINT NOT NULL DEFAULT 0,
    prefix_seq BIGINT NOT NULL DEFAULT 0,
    last_run_at TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    created_by TEXT,
    updated_by TEXT
);
CREATE INDEX agents_by_org ON agents (org_id, number);
CREATE INDEX agents_by_name ON agents (org_id, name);
CREATE TABLE agent_details (
    agent_id TEXT PRIMARY KEY,
    system TEXT,
    description TEXT,
    tags TEXT NOT NULL,
    metadata TEXT NOT NULL,
    settings TEXT NOT NULL
) {clustered};
CREATE TABLE blocks (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    label TEXT NOT NULL,
    value TEXT NOT NULL,
    limit_chars BIGINT NOT NULL,
    description TEXT,
    read_only SMALLINT NOT NULL DEFAULT 0,
    metadata TEXT NOT NULL,
    tags TEXT NOT NULL,
    is_template SMALLINT NOT NULL DEFAULT 0,
    hidden SMALLINT NOT NULL DEFAULT 0,
    version BIGINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    created_by TEXT,
    updated_by TEXT
);
CREATE INDEX blocks_by_org ON blocks (org_id, number);
CREATE TABLE block_versions (
    block_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    label TEXT NOT NULL,
    value TEXT NOT NULL,
    diff TEXT NOT NULL,
    author_kind TEXT NOT NULL,
    author_id TEXT NOT NULL,
    agent_id TEXT,
    run_id TEXT,
    message_id TEXT,
    created_at TEXT NOT NULL,
    PRIMARY KEY (block_id, version)
) {clustered};
CREATE TABLE agent_blocks (
    agent_id TEXT NOT NULL,
    block_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (agent_id, block_id)
) {clustered};
CREATE INDEX agent_blocks_by_block ON agent_blocks (block_id);
CREATE TABLE archives (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    description TEXT,
    metadata TEXT NOT NULL,
    passage_seq BIGINT NOT NULL DEFAULT 0,
    passage_count BIGINT NOT NULL DEFAULT 0,
    version BIGINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
CREATE INDEX archives_by_org ON archives (org_id, number);
CREATE TABLE agent_archives (
    agent_id TEXT NOT NULL,
    archive_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (agent_id, archive_id)
) {clustered};
CREATE INDEX agent_archives_by_archive ON agent_archives (archive_id);
CREATE TABLE passages (
    archive_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    text TEXT NOT NULL,
    tags TEXT NOT NULL,
    metadata TEXT NOT NULL,
    source TEXT NOT NULL,
    embedding {blob},
    embedding_model TEXT,
    created_at TEXT NOT NULL,
    occurred_at TEXT NOT NULL,
    PRIMARY KEY (archive_id, seq)
) {clustered};
CREATE TABLE passage_tags (
    archive_id TEXT NOT NULL,
    tag TEXT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (archive_id, tag, seq)
) {clustered};
CREATE TABLE archive_tags (
    archive_id TEXT NOT NULL,
    tag TEXT NOT NULL,
    uses BIGINT NOT NULL,
    PRIMARY KEY (archive_id, tag)
) {clustered};
CREATE TABLE conversations (
    agent_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    summary TEXT,
    settings TEXT NOT NULL,
    seen TEXT NOT NULL,
    prefix_seq BIGINT,
    view_tokens BIGINT NOT NULL DEFAULT 0,
    archived_at TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    last_message_at TEXT,
    PRIMARY KEY (agent_id, seq)
) {clustered};
CREATE TABLE messages (
    agent_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    role TEXT NOT NULL,
    kind TEXT NOT NULL,
    parts TEXT NOT NULL,
    run_seq BIGINT,
    run_id TEXT,
    step_id TEXT,
    name TEXT,
    otid TEXT,
    sender_id TEXT,
    tokens BIGINT NOT NULL,
    revision BIGINT NOT NULL DEFAULT 0,
    removed SMALLINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    occurred_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, seq)
) {clustered};
CREATE INDEX messages_by_conversation ON messages (agent_id, conversation_seq, seq);
CREATE TABLE message_revisions (
    agent_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    parts TEXT,
    settings_revision BIGINT NOT NULL,
    author_kind TEXT NOT NULL,
    author_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, seq, revision)
) {clustered};
CREATE TABLE runs (
    agent_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    org_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    conversation_id TEXT NOT NULL,
    status TEXT NOT NULL,
    stop_reason TEXT,
    failure TEXT,
    background SMALLINT NOT NULL,
    max_steps BIGINT NOT NULL,
    first_message_seq BIGINT,
    waiting_input TEXT,
    lease_owner TEXT,
    lease_number BIGINT NOT NULL DEFAULT 0,
    lease_until TEXT,
    cancel_requested SMALLINT NOT NULL DEFAULT 0,
    usage TEXT,
    step_count BIGINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    started_at TEXT,
    ended_at TEXT,
    PRIMARY KEY (agent_id, seq)
) {clustered};
CREATE UNIQUE INDEX runs_one_running ON runs (conversation_id) WHERE status = 'running';
CREATE INDEX runs_unended ON runs (conversation_id, seq) WHERE status IN ('queued', 'running');
CREATE TABLE idempotency_keys (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    idempotency_key TEXT NOT NULL,
    run_seq BIGINT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (agent_id, conversation_seq, idempotency_key)
) {clustered};
CREATE TABLE call_starts (
    agent_id TEXT NOT NULL,
    run_seq BIGINT NOT NULL,
    call_id TEXT NOT NULL,
    lease_number BIGINT NOT NULL,
    started_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, run_seq, call_id, lease_number)
) {clustered};
CREATE TABLE steps (
    agent_id TEXT NOT NULL,
    run_seq BIGINT NOT NULL,
    step_index BIGINT NOT NULL,
    id TEXT NOT NULL,
    status TEXT NOT NULL,
    model TEXT NOT NULL,
    recipe TEXT NOT NULL,
    lease_number BIGINT NOT NULL,
    usage TEXT,
    stop_reason TEXT,
    failure TEXT,
    created_at TEXT NOT NULL,
    ended_at TEXT,
    PRIMARY KEY (agent_id, run_seq, step_index)
) {clustered};
CREATE TABLE prefixes (
    agent_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    reason TEXT NOT NULL,
    system TEXT NOT NULL,
    tools TEXT NOT NULL,
    seen TEXT NOT NULL,
    from_message_seq BIGINT NOT NULL,
    settings_revision BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, seq)
) {clustered};
CREATE TABLE events (
    agent_id TEXT NOT NULL,
    run_seq BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    type TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, run_seq, seq)
) {clustered};
CREATE TABLE tools (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    name TEXT NOT NULL,
    spec TEXT NOT NULL,
    tags TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE TABLE agent_tools (
    agent_id TEXT NOT NULL,
    tool_id TEXT NOT NULL,
    PRIMARY KEY (agent_id, tool_id)
) {clustered};
CREATE INDEX agent_tools_by_tool ON agent_tools (tool_id);
INSERT INTO counters (name, value) VALUES ('number', 0);
