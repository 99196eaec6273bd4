"""The store contract on PostgreSQL whose tables are split by the columns of distribution, whole.

PostgreSQL has the rules of Citus there: a unique key holds the column, and a row never changes it.
"""

from __future__ import annotations

import functools
import os

import pytest

from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.features.copies.split import split_store
from perdure.storage.distribution import distributed
from perdure.storage.store import Store
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.testing.clock import START
from tests.contracts.store import StoreContract
from tests.support.postgres_server import address_of_an_empty_store

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.environ.get("PERDURE_FAULTS") != "full", reason="its rules are checked in tests/storage"),
]


@functools.cache
def split_once() -> None:
    """Split the tables of the schema that the tests of this process empty again and again."""
    assert split_store(address_of_an_empty_store(), 3, lambda step, done, total: None) == len(distributed())


class TestSplitStore(StoreContract):
    address: str
    # In each part stand a third of few rows: there PostgreSQL takes any index for as good.
    test_rows_are_found_by_all_columns_that_limit_them = None
    test_a_page_is_read_in_the_order_of_an_index = None
    test_few_that_wait_are_found_among_many = None

    @pytest.fixture(autouse=True)
    def _empty(self) -> None:
        split_once()
        self.address = address_of_an_empty_store()

    async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
        return await PostgresStore.open(self.address, at=START, org_id=org_id)
