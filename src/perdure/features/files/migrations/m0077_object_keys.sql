-- least: 69
-- The bytes of a file may lie in an object store, under this key. Those of files that are there already lie in
-- `file_uploads` until their text is made, and an older version puts them there too.

ALTER TABLE files ADD COLUMN object_key TEXT NOT NULL DEFAULT '';
CREATE INDEX files_by_object_key ON files (object_key);
