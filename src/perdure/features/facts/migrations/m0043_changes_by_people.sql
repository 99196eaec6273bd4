-- The newest version of a fact that a person wrote, so that agents are told of it. Versions that are there are old news.

ALTER TABLE graphs ADD COLUMN person_seq BIGINT NOT NULL DEFAULT 0;
CREATE INDEX facts_of_people ON facts (graph_id, seq) WHERE origin LIKE '%"person"%';
