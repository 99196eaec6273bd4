"""The databases: what a database must offer, and how SQLite and PostgreSQL offer it."""
