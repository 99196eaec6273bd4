-- What a prefix is made of, by name, and what is different from the prefix before it. Prefixes that are there already
-- have neither; nothing is known of what broke them but the reason.
ALTER TABLE prefixes ADD COLUMN parts TEXT NOT NULL DEFAULT '{}';
ALTER TABLE prefixes ADD COLUMN changes TEXT NOT NULL DEFAULT '[]';
