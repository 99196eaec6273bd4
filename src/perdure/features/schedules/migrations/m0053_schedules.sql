-- Agents may have schedules, and what became of each due time is a row. The agents that are there have none.
-- `next_at` is the next due time; the index holds only schedules that have one.

CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    agent_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    name TEXT NOT NULL,
    timing TEXT NOT NULL,
    action TEXT NOT NULL,
    messages TEXT NOT NULL,
    conversation_seq BIGINT NOT NULL,
    made_by TEXT NOT NULL,
    status TEXT NOT NULL,
    next_at TEXT,
    firings BIGINT NOT NULL,
    max_steps BIGINT,
    callback TEXT,
    form TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    UNIQUE (agent_id, seq)
);
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;
CREATE TABLE schedule_firings (
    agent_id TEXT NOT NULL,
    schedule_seq BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    due_at TEXT NOT NULL,
    fired_at TEXT NOT NULL,
    outcome TEXT NOT NULL,
    run_id TEXT,
    missed BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (agent_id, schedule_seq, seq),
    UNIQUE (agent_id, schedule_seq, due_at)
);
