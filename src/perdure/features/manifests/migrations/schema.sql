-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

CREATE TABLE manifest_things (
    org_id TEXT NOT NULL,
    manifest TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    thing_id TEXT NOT NULL,
    fields TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    removed_at TEXT,
    PRIMARY KEY (org_id, manifest, kind, name)
) {clustered};
