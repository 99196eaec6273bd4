-- least: 69
-- What was learned of models, so that a process that starts need not try them again. No row: nothing was learned yet.

CREATE TABLE model_traits (
    org_id TEXT NOT NULL,
    model TEXT NOT NULL,
    traits TEXT NOT NULL,
    PRIMARY KEY (org_id, model)
) {clustered};
