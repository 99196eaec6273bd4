-- On PostgreSQL each connection's last commit has a mark, by which a lost commit is found. Empty in SQLite.
-- least: 80

CREATE TABLE commit_marks (slot TEXT PRIMARY KEY, token TEXT NOT NULL, made_at BIGINT NOT NULL);
