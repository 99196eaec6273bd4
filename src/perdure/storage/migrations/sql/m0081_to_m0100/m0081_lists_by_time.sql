-- Lists over all agents, and the calls of a conversation, are read by an index. Rows that are there are indexed.
-- least: 80

CREATE INDEX agents_shown ON agents (org_id, hidden);
CREATE INDEX runs_by_time ON runs (created_at, agent_id, seq) WHERE hidden = 0;
CREATE INDEX runs_by_conversation ON runs (agent_id, conversation_seq, seq);
CREATE INDEX conversations_by_time ON conversations (created_at, agent_id, seq)
    WHERE seq > 0 AND hidden = 0 AND removed_at IS NULL;
CREATE INDEX conversations_by_message ON conversations ((COALESCE(last_message_at, '')), agent_id, seq)
    WHERE seq > 0 AND hidden = 0 AND removed_at IS NULL;
