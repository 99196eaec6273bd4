-- The blocks of a system message that is rendered when it is read: id -> version; null where the text is stored, as it is
-- for those that are there already.
ALTER TABLE system_messages ADD COLUMN blocks TEXT;
