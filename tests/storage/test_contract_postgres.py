"""The store contract on PostgreSQL, whole; and what only a database with many writers can get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.core.errors import InvalidInput
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.storage.database.postgres import PostgresStore
from perdure.storage.store import Store
from perdure.testing.clock import START
from tests.contracts import StoreContract
from tests.support.postgres_server import address_of_an_empty_store


class TestPostgresStore(StoreContract):
    address: str

    @pytest.fixture(autouse=True)
    def _empty(self) -> None:
        self.address = address_of_an_empty_store()

    async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
        return await PostgresStore.open(self.address, at=START, org_id=org_id)

    async def test_a_backup_is_made_with_its_own_tool(self, tmp_path: Path) -> None:
        """The error says with which, and the place does not name the password."""
        async with self.open_store() as store:
            with pytest.raises(InvalidInput, match="pg_dump"):
                await store.backup(tmp_path / "copy")

            assert store.place.startswith("the PostgreSQL database") and "password" not in store.place
