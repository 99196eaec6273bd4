-- A revision may have another name of the speaker, so that this can be forgotten. Without one it is the message's.
-- least: 87

ALTER TABLE message_revisions ADD COLUMN name TEXT;
