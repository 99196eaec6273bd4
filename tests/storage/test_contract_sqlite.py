"""The store contract on SQLite: the store with its threads, and the inline one of tests and simulations."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.storage.store import Store
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.testing import InlineStore
from perdure.testing.clock import START
from tests.contracts.base import Contract
from tests.contracts.isolation import IsolationContract
from tests.contracts.races import RaceContract
from tests.contracts.revisions import RevisionContract
from tests.contracts.store import StoreContract
from tests.contracts.units import UnitContract
from tests.contracts.upkeep import UpkeepContract


class OnAFile(Contract):
    """A contract whose database is one file per test."""

    path: Path

    @pytest.fixture(autouse=True)
    def _in_its_own_folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "perdure.db"


class TestSqliteStore(OnAFile, StoreContract):
    # A thousand calls of the same SQL as the inline store's.
    test_another_organisation_makes_no_difference = None
    test_an_organisation_without_anything_finds_nothing = None

    async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
        return SqliteStore.open(self.path, at=START, org_id=org_id)


class TestInlineStore(OnAFile, UnitContract, RaceContract, RevisionContract, UpkeepContract, IsolationContract):
    """What a store does itself: units, transactions, several stores on a file. The SQL is that of the one above."""

    async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
        return InlineStore(self.path, org_id=org_id)
