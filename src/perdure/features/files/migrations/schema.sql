-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

CREATE TABLE folders (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    description TEXT,
    instructions TEXT,
    metadata TEXT NOT NULL,
    archive_id TEXT NOT NULL UNIQUE,
    version BIGINT NOT NULL DEFAULT 0,
    file_seq BIGINT NOT NULL DEFAULT 0,
    file_count BIGINT NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE INDEX folders_by_org ON folders (org_id, number);
CREATE TABLE files (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    folder_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    name TEXT NOT NULL,
    original_name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    digest TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    problem TEXT NOT NULL,
    title TEXT NOT NULL,
    warnings TEXT NOT NULL,
    done BIGINT NOT NULL,
    total BIGINT NOT NULL,
    page_count BIGINT NOT NULL,
    line_count BIGINT NOT NULL,
    char_count BIGINT NOT NULL,
    chunk_count BIGINT NOT NULL,
    tries BIGINT NOT NULL DEFAULT 0,
    lease_owner TEXT,
    lease_until TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL, object_key TEXT NOT NULL DEFAULT '',
    UNIQUE (folder_id, number),
    UNIQUE (folder_id, name)
);
CREATE INDEX files_by_digest ON files (digest);
CREATE INDEX files_unended ON files (org_id, created_at) WHERE status NOT IN ('completed', 'error');
CREATE TABLE file_uploads (
    file_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    bytes {blob} NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (file_id, seq)
);
CREATE TABLE file_parts (
    file_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    first_line BIGINT NOT NULL,
    first_char BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (file_id, seq)
);
CREATE TABLE file_pages (
    file_id TEXT PRIMARY KEY,
    starts TEXT NOT NULL
) {clustered};
CREATE TABLE agent_folders (
    agent_id TEXT NOT NULL,
    folder_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    opens SMALLINT NOT NULL,
    PRIMARY KEY (agent_id, folder_id)
) {clustered};
CREATE INDEX agent_folders_by_folder ON agent_folders (folder_id);
CREATE TABLE agent_files (
    agent_id TEXT NOT NULL,
    file_id TEXT NOT NULL,
    is_open SMALLINT NOT NULL,
    first_line BIGINT NOT NULL,
    last_line BIGINT NOT NULL,
    used BIGINT NOT NULL,
    version BIGINT NOT NULL,
    used_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, file_id)
) {clustered};
CREATE INDEX agent_files_by_file ON agent_files (file_id);
CREATE INDEX files_by_object_key ON files (object_key);
