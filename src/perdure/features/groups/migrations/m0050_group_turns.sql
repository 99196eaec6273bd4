-- The turns of groups, and what was said in them. There were none.

CREATE TABLE group_turns (
    group_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    status TEXT NOT NULL,
    stop_reason TEXT,
    failure TEXT,
    input TEXT,
    plan TEXT,
    hops BIGINT NOT NULL,
    max_steps BIGINT,
    usage TEXT NOT NULL,
    step_count BIGINT NOT NULL,
    cost_usd DOUBLE PRECISION,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    lease_owner TEXT,
    lease_number BIGINT NOT NULL DEFAULT 0,
    lease_until TEXT,
    idempotency_key TEXT,
    digest TEXT NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT,
    ended_at TEXT,
    PRIMARY KEY (group_id, seq)
) {clustered};
CREATE INDEX group_turns_unended ON group_turns (created_at, group_id, seq) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX group_turns_by_key ON group_turns (group_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- A speech is a reference to the message of its agent. `place` counts within the turn; the user's messages have -1.
CREATE TABLE group_messages (
    group_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    turn_seq BIGINT NOT NULL,
    place BIGINT NOT NULL,
    kind TEXT NOT NULL,
    sender_id TEXT,
    sender_name TEXT NOT NULL,
    run_id TEXT,
    message_id TEXT,
    message_seq BIGINT,
    parts TEXT,
    chosen_id TEXT,
    ends_turn INTEGER NOT NULL,
    seen_seq BIGINT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (group_id, seq)
) {clustered};
CREATE INDEX group_messages_by_turn ON group_messages (group_id, turn_seq, seq);
CREATE INDEX group_messages_by_sender ON group_messages (group_id, sender_id, seq);
