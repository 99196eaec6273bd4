-- What files of agents were applied last is noted, so that a thing that a file lacks later is known. There is none yet.
-- least: 87

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
