"""How fast a store is copied between databases, backed up and restored.

    python -m benchmarks.migrate_db [MESSAGES]

The store has this many messages (20,000) of about 300 characters, of ten agents. PostgreSQL runs on the same machine,
without waiting for its disk, as in the tests.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perdure import AsyncPerdure
from perdure.features.copies.moves import Address, migrate_db
from perdure.features.copies.restore import restore
from perdure.storage.stores.open import open_store
from tests.server.largest import words
from tests.support.postgres_server import address_of_a_new_schema

AGENTS, AT_ONCE = 10, 1_000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


async def fill(path: Path, messages: int) -> None:
    async with await AsyncPerdure.open(path) as perdure:
        for number in range(AGENTS):
            agent = await perdure.create_agent(f"agent {number}", model="perdure/extractive")
            for first in range(0, messages // AGENTS, AT_ONCE):
                said = [
                    ("user", None, words(50, seed=seq), BEGAN + timedelta(minutes=seq))
                    for seq in range(first, min(first + AT_ONCE, messages // AGENTS))
                ]
                await agent.import_messages(said)


def tell(step: str, done: int, total: int) -> None:
    """No progress is shown."""


async def back_up(address: Address, path: Path) -> None:
    store = await open_store(address, at=BEGAN)
    await store.backup(path)
    await store.close()


async def timed(what: str, work: Awaitable[object]) -> object:
    began = time.perf_counter()
    result = await work
    seconds = time.perf_counter() - began
    rows = getattr(result, "rows", 0)
    print(f"{what:<34} {seconds:7.1f} s" + (f" {rows:>9,} rows {rows / seconds:>9,.0f} a second" if rows else ""))
    return result


async def main(messages: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, address = folder / "from.db", address_of_a_new_schema()
        await fill(source, messages)
        print(f"{messages:,} messages, {source.stat().st_size / 1e6:.0f} MB")
        await timed("SQLite to PostgreSQL", migrate_db(source, address, at=BEGAN, progress=tell))
        await timed("PostgreSQL to SQLite", migrate_db(address, folder / "to.db", at=BEGAN, progress=tell))
        await timed("SQLite to SQLite", migrate_db(source, folder / "copy.db", at=BEGAN, progress=tell))
        await timed("backup of SQLite", back_up(source, folder / "sqlite.db"))
        await timed("backup of PostgreSQL", back_up(address, folder / "postgres.db"))
        await timed("restore into SQLite", restore(folder / "sqlite.db", source, at=BEGAN, progress=tell))
        await timed("restore into PostgreSQL", restore(folder / "sqlite.db", address, at=BEGAN, progress=tell))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
