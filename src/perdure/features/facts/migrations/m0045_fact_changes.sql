-- A row of facts has the version that its graph got with the row's last change, so that a search reads changed rows only.
-- Those of before have 0: they are read once, with all others.
ALTER TABLE facts ADD COLUMN graph_version BIGINT NOT NULL DEFAULT 0;
CREATE INDEX facts_by_version ON facts (graph_id, graph_version);
