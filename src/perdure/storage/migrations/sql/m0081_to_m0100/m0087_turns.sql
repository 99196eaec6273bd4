-- What a first search reads of each message is stored in parts. Those of older messages are stored as more are added.
-- least: 85

CREATE TABLE turns (agent_id TEXT NOT NULL, part BIGINT NOT NULL, names TEXT NOT NULL, turns {blob} NOT NULL, PRIMARY KEY (agent_id, part));
