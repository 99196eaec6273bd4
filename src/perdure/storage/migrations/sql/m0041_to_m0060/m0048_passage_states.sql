-- Passages fade and are archived as facts are, and recalls and citations of them are counted. All that are there are
-- active, and none of them was recalled.
ALTER TABLE passages ADD COLUMN state TEXT NOT NULL DEFAULT 'active';
ALTER TABLE passages ADD COLUMN state_origin TEXT NOT NULL DEFAULT '{}';
ALTER TABLE passages ADD COLUMN recalls BIGINT NOT NULL DEFAULT 0;
CREATE INDEX passages_by_state ON passages (archive_id, state, seq) WHERE state <> 'active';
CREATE INDEX passages_recalled ON passages (archive_id, seq, recalls) WHERE recalls > 0;
