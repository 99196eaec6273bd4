-- Beside a vector stand the signs of the vectors of its text's words. Rows that are there have none until they are
-- embedded again. The cache of vectors begins anew: in key order, SQLite would need two pages for each of its rows.
-- No older version can live with this: what it forgets or changes would keep the signs of its words.

ALTER TABLE vectors ADD COLUMN words {blob};
DROP TABLE embedding_cache;
CREATE TABLE embedding_cache (
    slot {row_key} PRIMARY KEY,
    model TEXT NOT NULL,
    hash {blob} NOT NULL,
    vector {blob} NOT NULL,
    words {blob}
);
