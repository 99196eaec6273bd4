-- Where deleted things stood in their lists, so that a page that begins at one of them is still found.
-- least: 83

CREATE TABLE deleted_places (digest TEXT PRIMARY KEY, org_id TEXT NOT NULL, place TEXT NOT NULL, deleted_at BIGINT NOT NULL);
CREATE INDEX deleted_places_by_time ON deleted_places (deleted_at);
