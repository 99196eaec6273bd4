-- Pages of facts that few facts match read those only.
CREATE INDEX facts_by_state ON facts (graph_id, state, first_seq) WHERE expired_at IS NULL AND state <> 'active';
CREATE INDEX facts_by_relation ON facts (graph_id, relation, first_seq) WHERE expired_at IS NULL;
CREATE INDEX facts_by_creation ON facts (graph_id, created_at, seq);
