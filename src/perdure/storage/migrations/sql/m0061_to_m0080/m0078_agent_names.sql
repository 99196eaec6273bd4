-- least: 69
-- The newest agent of a name is the first row of this index, however many agents have the name. By the index of names
-- alone PostgreSQL would rather read all agents from the newest on, once it takes names for common.

CREATE INDEX agents_by_name_and_number ON agents (org_id, name, number);
DROP INDEX agents_by_name;
