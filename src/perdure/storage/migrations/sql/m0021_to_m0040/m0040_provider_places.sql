-- Whether the address of a registered provider may be on this machine or in a private network. One of before may not
-- until its address is set again.

ALTER TABLE providers ADD COLUMN private SMALLINT NOT NULL DEFAULT 0;
