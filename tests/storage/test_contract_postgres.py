"""The store contract on PostgreSQL, whole; and what only a database with many writers can get wrong."""

from __future__ import annotations

import os

import pytest

from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.storage.store import Store
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.testing.clock import START
from tests.contracts.store import StoreContract
from tests.support.postgres_server import address_of_an_empty_store


class TestPostgresStore(StoreContract):
    address: str
    # An agent is removed in 64 steps, and 692 verbs are called at each look. On SQLite every eighth step is looked at,
    # by the same statements.
    steps_between_looks = 8 if os.environ.get("PERDURE_FAULTS") == "full" else 32

    @pytest.fixture(autouse=True)
    def _empty(self) -> None:
        self.address = address_of_an_empty_store()

    async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
        return await PostgresStore.open(self.address, at=START, org_id=org_id)

    async def test_the_place_does_not_name_the_password(self) -> None:
        """It is for people and logs."""
        async with self.open_store() as store:
            assert store.place.startswith("the PostgreSQL database") and "password" not in store.place
