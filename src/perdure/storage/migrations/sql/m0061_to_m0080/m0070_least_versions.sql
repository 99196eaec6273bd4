-- least: 69
-- With each migration stands the lowest version that can live with the store after it. Of those before, none is known.

ALTER TABLE schema_migrations ADD COLUMN least INTEGER;
