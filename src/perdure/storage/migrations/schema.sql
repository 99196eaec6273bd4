-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

ALTER TABLE schema_migrations ADD COLUMN least INTEGER;
-- full text: message_words
-- full text: passage_words
CREATE TABLE organisations (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_at TEXT NOT NULL
, deleted_at TEXT, number BIGINT NOT NULL DEFAULT 0);
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
, embedded SMALLINT NOT NULL DEFAULT 0, words_seq BIGINT NOT NULL DEFAULT 0, follows_default SMALLINT NOT NULL DEFAULT 0);
CREATE INDEX agents_by_org ON agents (org_id, number);
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
    created_at TEXT NOT NULL, checksum BIGINT,
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
, embedding TEXT);
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
    occurred_at TEXT NOT NULL, updated_at TEXT, uses BIGINT NOT NULL DEFAULT 0, checksum BIGINT, state TEXT NOT NULL DEFAULT 'active', state_origin TEXT NOT NULL DEFAULT '{}', recalls BIGINT NOT NULL DEFAULT 0,
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
    last_message_at TEXT, stubs TEXT NOT NULL DEFAULT '{}', overcount BIGINT NOT NULL DEFAULT 0, pending_run_seq BIGINT, pending_from BIGINT, first_seq BIGINT NOT NULL DEFAULT 0, hidden SMALLINT NOT NULL DEFAULT 0, removed_at TEXT,
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
    occurred_at TEXT NOT NULL, checksum BIGINT,
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
    created_at TEXT NOT NULL, checksum BIGINT, name TEXT,
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
    ended_at TEXT, resumes BIGINT, begins_at BIGINT, turn_from BIGINT, answer TEXT, input_waits SMALLINT NOT NULL DEFAULT 0, client_tools TEXT, hook_context TEXT, hidden SMALLINT NOT NULL DEFAULT 0, options TEXT, batch_id TEXT, callback TEXT, callback_due_at TEXT, origin_id TEXT,
    PRIMARY KEY (agent_id, seq)
) {clustered};
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
    ended_at TEXT, feedback TEXT, tags TEXT,
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
    created_at TEXT NOT NULL, summary TEXT NOT NULL DEFAULT '', nodes TEXT NOT NULL DEFAULT '[]', pinned TEXT NOT NULL DEFAULT '[]', client_tools TEXT, marker TEXT NOT NULL DEFAULT '', hides_notice SMALLINT NOT NULL DEFAULT 0, parts TEXT NOT NULL DEFAULT '{}', changes TEXT NOT NULL DEFAULT '[]', opening TEXT NOT NULL DEFAULT '',
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
    updated_at TEXT NOT NULL, number BIGINT NOT NULL DEFAULT 0, tool_type TEXT NOT NULL DEFAULT '', code TEXT,
    UNIQUE (org_id, name)
);
CREATE TABLE agent_tools (
    agent_id TEXT NOT NULL,
    tool_id TEXT NOT NULL,
    PRIMARY KEY (agent_id, tool_id)
) {clustered};
CREATE INDEX agent_tools_by_tool ON agent_tools (tool_id);
CREATE TABLE step_exchanges (
    agent_id TEXT NOT NULL,
    run_seq BIGINT NOT NULL,
    step_index BIGINT NOT NULL,
    request TEXT NOT NULL,
    response TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    PRIMARY KEY (agent_id, run_seq, step_index)
) {clustered};
CREATE TABLE summary_nodes (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    level BIGINT NOT NULL,
    from_message_seq BIGINT NOT NULL,
    upto_message_seq BIGINT NOT NULL,
    children TEXT NOT NULL,
    message_count BIGINT NOT NULL,
    since TEXT NOT NULL,
    until TEXT NOT NULL,
    text TEXT NOT NULL,
    tokens BIGINT NOT NULL,
    made_by TEXT NOT NULL,
    model TEXT,
    rejected TEXT,
    usage TEXT,
    created_at TEXT NOT NULL, method TEXT NOT NULL DEFAULT 'normal', revised_at TEXT,
    PRIMARY KEY (agent_id, conversation_seq, seq)
) {clustered};
CREATE TABLE token_factors (
    org_id TEXT NOT NULL,
    model TEXT NOT NULL,
    factor DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (org_id, model)
) {clustered};
CREATE TABLE vector_scopes (
    number BIGINT PRIMARY KEY,
    org_id TEXT NOT NULL,
    owner_kind TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    model TEXT NOT NULL,
    dimensions BIGINT,
    generation BIGINT NOT NULL DEFAULT 0,
    version BIGINT NOT NULL DEFAULT 0,
    row_count BIGINT NOT NULL DEFAULT 0,
    fill_from BIGINT
) {clustered};
CREATE INDEX vector_scopes_to_fill ON vector_scopes (number) WHERE fill_from IS NOT NULL;
CREATE TABLE vectors (
    key {row_key} PRIMARY KEY,
    number BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    version BIGINT NOT NULL,
    vector {blob}
, words {blob});
CREATE INDEX vectors_by_version ON vectors (number, version);
CREATE TABLE embedding_queue (
    number BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    tries BIGINT NOT NULL DEFAULT 0,
    not_before TEXT NOT NULL DEFAULT '',
    failure TEXT,
    PRIMARY KEY (number, seq)
) {clustered};
CREATE INDEX embedding_queue_by_time ON embedding_queue (not_before);
CREATE INDEX passages_by_time ON passages (archive_id, occurred_at);
CREATE TABLE captures (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    upto_seq BIGINT NOT NULL,
    captured_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, conversation_seq)
) {clustered};
CREATE INDEX tools_by_number ON tools (org_id, number);
CREATE TABLE client_tools (
    agent_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    tools TEXT NOT NULL,
    PRIMARY KEY (agent_id, digest)
) {clustered};
CREATE INDEX conversations_pending ON conversations (agent_id, seq) WHERE pending_run_seq IS NOT NULL;
CREATE INDEX runs_resuming ON runs (conversation_id, seq) WHERE resumes IS NOT NULL;
CREATE TABLE secrets (
    org_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (org_id, owner_id, name)
) {clustered};
CREATE TABLE resets (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    number BIGINT NOT NULL,
    upto_seq BIGINT NOT NULL,
    message_count BIGINT NOT NULL,
    author_kind TEXT NOT NULL,
    author_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, conversation_seq, number)
) {clustered};
CREATE UNIQUE INDEX runs_unended ON runs (conversation_id, (CASE status WHEN 'running' THEN -1 ELSE seq END))
    WHERE status IN ('queued', 'running');
CREATE TABLE resetting (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    upto_seq BIGINT NOT NULL,
    next_seq BIGINT NOT NULL,
    PRIMARY KEY (agent_id, conversation_seq)
) {clustered};
CREATE TABLE rebuilding (
    name TEXT PRIMARY KEY,
    number BIGINT NOT NULL,
    next_seq BIGINT NOT NULL
);
CREATE INDEX passages_used ON passages (archive_id, seq, uses) WHERE uses > 0;
CREATE TABLE system_messages (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    text TEXT NOT NULL,
    compiled_at TEXT NOT NULL,
    created_at TEXT NOT NULL, blocks TEXT,
    PRIMARY KEY (agent_id, conversation_seq)
) {clustered};
CREATE TABLE conversation_blocks (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    label TEXT NOT NULL,
    block_id TEXT,
    position BIGINT NOT NULL,
    PRIMARY KEY (agent_id, conversation_seq, label)
) {clustered};
CREATE INDEX conversation_blocks_by_block ON conversation_blocks (block_id);
CREATE INDEX messages_by_time ON messages (created_at, agent_id, seq);
CREATE INDEX steps_by_time ON steps (created_at);
CREATE INDEX steps_with_feedback ON steps (created_at) WHERE feedback IS NOT NULL;
CREATE TABLE identities (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    identifier_key TEXT NOT NULL,
    name TEXT NOT NULL,
    identity_type TEXT NOT NULL,
    project_id TEXT,
    properties TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
CREATE UNIQUE INDEX identities_by_key ON identities (org_id, identifier_key, COALESCE(project_id, ''));
CREATE INDEX identities_by_org ON identities (org_id, number);
CREATE TABLE agent_identities (
    agent_id TEXT NOT NULL,
    identity_id TEXT NOT NULL,
    PRIMARY KEY (agent_id, identity_id)
) {clustered};
CREATE INDEX agent_identities_by_identity ON agent_identities (identity_id, agent_id);
CREATE TABLE block_identities (
    block_id TEXT NOT NULL,
    identity_id TEXT NOT NULL,
    PRIMARY KEY (block_id, identity_id)
) {clustered};
CREATE INDEX block_identities_by_identity ON block_identities (identity_id, block_id);
CREATE TABLE sandbox_configs (
    org_id TEXT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
CREATE TABLE sandbox_variables (
    org_id TEXT NOT NULL,
    name TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    config_id TEXT NOT NULL,
    sealed TEXT NOT NULL,
    description TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (org_id, name)
);
CREATE TABLE providers (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    provider_type TEXT NOT NULL,
    base_url TEXT NOT NULL,
    sealed TEXT NOT NULL,
    region TEXT,
    api_version TEXT,
    synced_at TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
, private SMALLINT NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX providers_by_name ON providers (org_id, name);
CREATE INDEX providers_by_org ON providers (org_id, number);
CREATE INDEX agents_by_update ON agents (org_id, updated_at, number);
CREATE INDEX agents_by_use ON agents (org_id, (COALESCE(last_run_at, '')), number);
CREATE TABLE batches (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    created_at TEXT NOT NULL,
    callback TEXT,
    callback_due_at TEXT
);
CREATE INDEX batches_by_time ON batches (org_id, created_at, number);
CREATE INDEX batches_callback_due ON batches (callback_due_at) WHERE callback_due_at IS NOT NULL;
CREATE INDEX runs_by_batch ON runs (batch_id, status) WHERE batch_id IS NOT NULL;
CREATE INDEX runs_callback_due ON runs (callback_due_at) WHERE callback_due_at IS NOT NULL;
CREATE TABLE corrections (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    items BIGINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    undone_at TEXT,
    PRIMARY KEY (agent_id, number)
) {clustered};
CREATE TABLE correction_items (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    before TEXT NOT NULL,
    after BIGINT,
    PRIMARY KEY (agent_id, number, seq)
) {clustered};
CREATE TABLE erasures (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    text TEXT NOT NULL,
    targets TEXT NOT NULL,
    target BIGINT NOT NULL,
    after TEXT,
    changed BIGINT NOT NULL,
    passes BIGINT NOT NULL,
    counts TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    ended_at TEXT, owner TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (agent_id, number)
) {clustered};
CREATE INDEX erasures_unended ON erasures (updated_at) WHERE ended_at IS NULL;
CREATE INDEX passages_by_state ON passages (archive_id, state, seq) WHERE state <> 'active';
CREATE INDEX passages_recalled ON passages (archive_id, seq, recalls) WHERE recalls > 0;
CREATE INDEX runs_by_origin ON runs (origin_id) WHERE origin_id IS NOT NULL;
CREATE TABLE used (
    org_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    period TEXT NOT NULL,
    requests BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (owner_id, period)
) {clustered};
CREATE INDEX used_by_period ON used (period);
CREATE TABLE message_sources (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    place BIGINT NOT NULL,
    label TEXT NOT NULL,
    name TEXT NOT NULL,
    via TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (agent_id, conversation_seq, seq, place)
) {clustered};
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
CREATE INDEX agents_by_name_and_number ON agents (org_id, name, number);
CREATE TABLE model_traits (
    org_id TEXT NOT NULL,
    model TEXT NOT NULL,
    traits TEXT NOT NULL,
    PRIMARY KEY (org_id, model)
) {clustered};
CREATE INDEX agents_shown ON agents (org_id, hidden);
CREATE INDEX runs_by_time ON runs (created_at, agent_id, seq) WHERE hidden = 0;
CREATE INDEX runs_by_conversation ON runs (agent_id, conversation_seq, seq);
CREATE INDEX conversations_by_time ON conversations (created_at, agent_id, seq)
    WHERE seq > 0 AND hidden = 0 AND removed_at IS NULL;
CREATE INDEX conversations_by_message ON conversations ((COALESCE(last_message_at, '')), agent_id, seq)
    WHERE seq > 0 AND hidden = 0 AND removed_at IS NULL;
CREATE TABLE commit_marks (slot TEXT PRIMARY KEY, token TEXT NOT NULL, made_at BIGINT NOT NULL);
CREATE TABLE deleted_places (digest TEXT PRIMARY KEY, org_id TEXT NOT NULL, place TEXT NOT NULL, deleted_at BIGINT NOT NULL);
CREATE INDEX deleted_places_by_time ON deleted_places (deleted_at);
CREATE TABLE turns (agent_id TEXT NOT NULL, part BIGINT NOT NULL, names TEXT NOT NULL, turns {blob} NOT NULL, PRIMARY KEY (agent_id, part));
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
CREATE TABLE embedding_cache (
    slot {row_key} PRIMARY KEY,
    model TEXT NOT NULL,
    hash {blob} NOT NULL,
    vector {blob} NOT NULL,
    words {blob}
);
INSERT INTO organisations (id, name, created_at, deleted_at, number) VALUES ('org-00000000-0000-4000-8000-000000000000', 'default', (SELECT MIN(applied_at) FROM schema_migrations), NULL, 0);
INSERT INTO counters (name, value) VALUES ('number', 0);
INSERT INTO counters (name, value) VALUES ('directory', 0);
