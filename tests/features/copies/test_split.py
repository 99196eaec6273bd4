"""A store on PostgreSQL whose tables are split: the same rows, and everything works on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perdure.core.errors import InvalidInput, StoreBusy
from perdure.features.copies.moves import migrate_db, split
from perdure.features.copies.restore import restore
from perdure.storage.distribution import distributed
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.testing.clock import START
from tests.contracts.base import Contract, list_texts
from tests.storage.test_two_versions import NEWER
from tests.support.filled_store import filled_store
from tests.support.postgres_server import address_of_a_new_schema, run_sql

pytestmark = pytest.mark.migrates

units = Contract()


def ignore(step: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copyfile(filled_store(), tmp_path / "from.db"))


@pytest.mark.slow
async def test_a_store_that_is_split_keeps_every_row_and_works_on(source: Path) -> None:
    """Its backup has the same content; a newer version upgrades it; a second split has nothing to do."""
    address = address_of_a_new_schema()
    before = await migrate_db(source, address, at=START, progress=ignore)

    assert await split(address, 2, progress=ignore) == len(distributed())
    assert await split(address, 2, progress=ignore) == 0
    part = "SELECT COUNT(*) FROM pg_tables WHERE tablename = 'messages_part1' AND schemaname = current_schema()"
    assert run_sql(address, part) == [(1,)]
    after = await migrate_db(address, source.with_name("back.db"), at=START, progress=ignore)
    assert (after.rows, after.digest) == (before.rows, before.digest)

    store = await PostgresStore.open(address, at=START, migrations=NEWER)
    agent = await store.write(units.add_agent, "after")
    await store.write(units.say, agent.id, "hello")
    assert await store.read(list_texts, agent.id) == ["hello"]
    await store.close()


@pytest.mark.slow
async def test_restore_into_a_split_store_splits_the_backup_too(source: Path) -> None:
    """Into as many parts; the tables of the old store are all in the schema that keeps it. The name of the schema needs
    quotes."""
    address = address_of_a_new_schema("Tenant-")
    await migrate_db(source, address, at=START, progress=ignore)
    await split(address, 3, progress=ignore)
    tables = "SELECT relkind::text, COUNT(*) FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = "
    before = run_sql(address, f"{tables} quote_ident(current_schema())::regnamespace GROUP BY 1 ORDER BY 1")

    report = await restore(source, address, at=START, progress=ignore)

    assert run_sql(address, f"{tables} quote_ident(current_schema())::regnamespace GROUP BY 1 ORDER BY 1") == before
    assert run_sql(address, f"{tables} quote_ident('{report.kept}')::regnamespace GROUP BY 1 ORDER BY 1") == before
    assert await split(address, 3, progress=ignore) == 0
    after = await migrate_db(address, source.with_name("back.db"), at=START, progress=ignore)
    assert (after.rows, after.digest) == (report.rows, report.digest)


async def test_a_store_that_can_not_be_split_says_why(tmp_path: Path) -> None:
    """A file, a number of parts that is no split, a database without tables, and a store that is open."""
    address = address_of_a_new_schema()
    for store, parts, why in ((tmp_path / "x.db", 2, "file"), (address, 1, "2 to 256"), (address, 2, "no table")):
        with pytest.raises(InvalidInput, match=why):
            await split(store, parts, progress=ignore)
    opened = await PostgresStore.open(address, at=START)
    with pytest.raises(StoreBusy, match="open"):
        await split(address, 2, progress=ignore)
    await opened.close()
