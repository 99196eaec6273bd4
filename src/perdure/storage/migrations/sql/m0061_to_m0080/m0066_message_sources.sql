-- Sources from outside that messages brought into a conversation. Of messages that are there already nothing is known.
-- least: 55

CREATE TABLE message_sources (
    agent_id TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    place BIGINT NOT NULL,
    label TEXT NOT NULL,
    name TEXT NOT NULL,
    via TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (agent_id, conversation_seq, seq, place)
) {clustered};
