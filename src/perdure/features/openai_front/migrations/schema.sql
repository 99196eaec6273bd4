-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

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
