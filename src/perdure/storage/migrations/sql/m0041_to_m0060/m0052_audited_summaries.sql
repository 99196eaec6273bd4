-- How a summary came about, and when it was written again. An extract of an older store is a fallback; which answer of
-- the model an older summary is, is not known: it counts as the first.
ALTER TABLE summary_nodes ADD COLUMN method TEXT NOT NULL DEFAULT 'normal';
ALTER TABLE summary_nodes ADD COLUMN revised_at TEXT;
UPDATE summary_nodes SET method = 'fallback' WHERE made_by = 'extract';
