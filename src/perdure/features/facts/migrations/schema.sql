-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

CREATE TABLE graphs (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    fact_archive_id TEXT NOT NULL UNIQUE,
    entity_archive_id TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    version BIGINT NOT NULL DEFAULT 0,
    entity_seq BIGINT NOT NULL DEFAULT 0,
    fact_seq BIGINT NOT NULL DEFAULT 0,
    episode_seq BIGINT NOT NULL DEFAULT 0,
    rule_seq BIGINT NOT NULL DEFAULT 0,
    dropped TEXT NOT NULL DEFAULT '{}',
    input_tokens BIGINT NOT NULL DEFAULT 0,
    output_tokens BIGINT NOT NULL DEFAULT 0,
    extraction_calls BIGINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
, person_seq BIGINT NOT NULL DEFAULT 0);
CREATE INDEX graphs_by_org ON graphs (org_id, number);
CREATE TABLE agent_graphs (
    agent_id TEXT PRIMARY KEY,
    graph_id TEXT NOT NULL
);
CREATE INDEX agent_graphs_by_graph ON agent_graphs (graph_id, agent_id);
CREATE TABLE entities (
    graph_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    summary TEXT NOT NULL,
    aliases TEXT NOT NULL,
    attributes TEXT NOT NULL,
    fact_count BIGINT NOT NULL DEFAULT 0,
    community_seq BIGINT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL, merged_into BIGINT,
    PRIMARY KEY (graph_id, seq)
) {clustered};
CREATE INDEX entities_by_community ON entities (graph_id, community_seq, seq) WHERE community_seq IS NOT NULL;
CREATE TABLE entity_names (
    graph_id TEXT NOT NULL,
    name TEXT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (graph_id, name, seq)
) {clustered};
CREATE TABLE facts (
    graph_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    first_seq BIGINT NOT NULL,
    text_seq BIGINT NOT NULL,
    subject BIGINT NOT NULL,
    object BIGINT NOT NULL,
    relation TEXT NOT NULL,
    type TEXT,
    rating DOUBLE PRECISION NOT NULL,
    valid_at TEXT,
    invalid_at TEXT,
    created_at TEXT NOT NULL,
    expired_at TEXT,
    state TEXT NOT NULL,
    change TEXT NOT NULL,
    trust TEXT NOT NULL,
    scope TEXT NOT NULL,
    origin TEXT NOT NULL, graph_version BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (graph_id, seq)
) {clustered};
CREATE INDEX facts_by_text ON facts (graph_id, text_seq);
CREATE INDEX facts_by_first ON facts (graph_id, first_seq, seq);
CREATE INDEX facts_by_subject ON facts (graph_id, subject, first_seq);
CREATE INDEX facts_by_object ON facts (graph_id, object, first_seq);
CREATE INDEX facts_by_begin ON facts (graph_id, valid_at, seq) WHERE valid_at IS NOT NULL AND expired_at IS NULL;
CREATE INDEX facts_by_end ON facts (graph_id, invalid_at, seq) WHERE invalid_at IS NOT NULL AND expired_at IS NULL;
CREATE UNIQUE INDEX facts_believed ON facts (graph_id, first_seq) WHERE expired_at IS NULL;
CREATE TABLE fact_sources (
    graph_id TEXT NOT NULL,
    first_seq BIGINT NOT NULL,
    episode_seq BIGINT NOT NULL,
    PRIMARY KEY (graph_id, first_seq, episode_seq)
) {clustered};
CREATE INDEX fact_sources_by_episode ON fact_sources (graph_id, episode_seq);
CREATE TABLE episodes (
    graph_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    ref TEXT NOT NULL,
    text TEXT,
    agent_id TEXT,
    conversation_seq BIGINT,
    message_seq BIGINT,
    trust TEXT NOT NULL,
    scope TEXT NOT NULL,
    occurred_at TEXT NOT NULL,
    created_at TEXT NOT NULL,
    extracted_at TEXT, tries BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (graph_id, seq)
) {clustered};
CREATE UNIQUE INDEX episodes_by_ref ON episodes (ref, graph_id);
CREATE INDEX episodes_by_message ON episodes (agent_id, message_seq) WHERE agent_id IS NOT NULL;
CREATE INDEX episodes_waiting ON episodes (graph_id, seq) WHERE extracted_at IS NULL;
CREATE TABLE extractions (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    upto_seq BIGINT NOT NULL,
    extracted_at TEXT NOT NULL, tries BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, conversation_seq)
) {clustered};
CREATE TABLE fact_rules (
    graph_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    text TEXT NOT NULL,
    entity BIGINT,
    relation TEXT,
    created_at TEXT NOT NULL,
    PRIMARY KEY (graph_id, seq)
) {clustered};
CREATE TABLE communities (
    graph_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    name TEXT NOT NULL,
    summary TEXT NOT NULL,
    size BIGINT NOT NULL,
    summary_due BIGINT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (graph_id, seq)
) {clustered};
CREATE INDEX communities_due ON communities (graph_id, seq) WHERE summary_due = 1;
CREATE INDEX facts_of_people ON facts (graph_id, seq) WHERE origin LIKE '%"person"%';
CREATE INDEX facts_by_version ON facts (graph_id, graph_version);
CREATE INDEX facts_by_state ON facts (graph_id, state, first_seq) WHERE expired_at IS NULL AND state <> 'active';
CREATE INDEX facts_by_relation ON facts (graph_id, relation, first_seq) WHERE expired_at IS NULL;
CREATE INDEX facts_by_creation ON facts (graph_id, created_at, seq);
