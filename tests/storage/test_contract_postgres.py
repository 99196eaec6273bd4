"""The store contract on PostgreSQL, whole; and what only a database with many writers can get wrong."""

from __future__ import annotations

import functools
import os

import pytest
from psycopg_pool import ConnectionPool

from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.storage.store import Store
from perdure.storage.stores.postgres_store import CONNECTIONS, Connection, PostgresStore
from tests.contracts.store import StoreContract
from tests.support.at_end import at_end
from tests.support.postgres_server import address_of_an_empty_store


class SharedPool(ConnectionPool[Connection]):
    """The connections of all stores of this module: what a new one has to learn of the schema takes longer than most
    tests."""

    def close(self, timeout: float = 5.0) -> None:
        """Stay open for the next store."""


@functools.cache
def shared_pool(address: str) -> SharedPool:
    """The pool of an address, as `PostgresStore.open` makes it."""
    pool = SharedPool(address, kwargs={"autocommit": True}, min_size=1, max_size=CONNECTIONS, open=True)
    at_end.callback(ConnectionPool.close, pool)
    return pool


class TestPostgresStore(StoreContract):
    address: str
    # An agent is removed in 64 steps, and 692 verbs are called at each look. On SQLite every eighth step is looked at,
    # by the same statements.
    steps_between_looks = 8 if os.environ.get("PERDURE_FAULTS") == "full" else 32

    @pytest.fixture(autouse=True)
    def _empty(self) -> None:
        self.address = address_of_an_empty_store()

    async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
        return PostgresStore(shared_pool(self.address), self.address, org_id)

    async def test_the_place_does_not_name_the_password(self) -> None:
        """It is for people and logs."""
        async with self.open_store() as store:
            assert store.place.startswith("the PostgreSQL database") and "password" not in store.place
