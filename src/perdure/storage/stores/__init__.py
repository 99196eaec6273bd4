"""The stores: SQLite in a file, PostgreSQL."""
