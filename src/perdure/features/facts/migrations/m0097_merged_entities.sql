-- An entity that a person has merged into another one keeps its row, for the versions of facts that name it.

ALTER TABLE entities ADD COLUMN merged_into BIGINT;
