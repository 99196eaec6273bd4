-- Whether an agent follows the default model. One of before does if it has the built-in program; every other keeps its
-- model. Prefixes that were written before show what they showed.

ALTER TABLE agents ADD COLUMN follows_default SMALLINT NOT NULL DEFAULT 0;
UPDATE agents SET follows_default = 1 WHERE model = 'perdure/extractive';
ALTER TABLE prefixes ADD COLUMN hides_notice SMALLINT NOT NULL DEFAULT 0;
