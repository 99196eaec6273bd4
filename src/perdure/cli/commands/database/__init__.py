"""Checks of a store: what tables hold on both databases, and a PostgreSQL server."""
