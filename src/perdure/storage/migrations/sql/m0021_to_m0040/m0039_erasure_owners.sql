-- An erasure has the process that carries it out, so that another one goes on when it is gone. Those of before have none,
-- and are gone on with at once.
ALTER TABLE erasures ADD COLUMN owner TEXT NOT NULL DEFAULT '';
