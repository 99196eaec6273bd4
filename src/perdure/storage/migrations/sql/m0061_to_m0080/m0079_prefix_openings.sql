-- What differs from conversation to conversation leaves the system text of new prefixes for a message behind it, so that
-- all conversations of an agent begin with the same bytes. Prefixes that are there keep theirs in the system text.
-- least: 69

ALTER TABLE prefixes ADD COLUMN opening TEXT NOT NULL DEFAULT '';
