"""The store: one SQL path for SQLite and PostgreSQL; what really differs stands in `sqlite` and `postgres`."""
