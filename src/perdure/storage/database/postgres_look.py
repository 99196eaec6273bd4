"""Look at a PostgreSQL database without opening it as a store: nothing is made, and nothing begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from perdure.core.errors import ExtraMissing

Rows = Callable[..., Sequence[tuple[Any, ...]]]
"""Takes a statement with a `?` for each value, and the values; returns its rows."""


@contextmanager
def open_for_reading(address: str, *, timeout_s: int = 5) -> Iterator[Rows]:
    """Connect to the database at an address, and give a function that runs statements, all in one read-only
    transaction. Raises: StoreError; ExtraMissing: psycopg is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise ExtraMissing("a store on PostgreSQL", extra="postgres") from error
    from perdure.storage.database.postgres_errors import check_address, store_error

    check_address(address)
    try:
        with psycopg.connect(address, connect_timeout=timeout_s) as connection:
            connection.read_only = True

            def rows(sql: str, *values: Any) -> Sequence[tuple[Any, ...]]:
                return connection.execute(sql.replace("%", "%%").replace("?", "%s").encode(), values).fetchall()

            yield rows
    except psycopg.Error as error:
        raise store_error(error) from error
