-- Which conversation a request of a chat program goes on, by digests of the messages that it sends again.
-- least: 87

CREATE TABLE openai_histories (
    agent_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    said_in TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    system_digest TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, digest, said_in)
) {clustered};
CREATE INDEX openai_histories_by_conversation ON openai_histories (agent_id, conversation_id, created_at);
