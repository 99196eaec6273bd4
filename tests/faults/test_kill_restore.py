"""A restore that is killed at any call of the system leaves the old store or the new one, and can be repeated."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from perdure.features.copies.restore import restore
from perdure.storage.stores.open import open_store
from perdure.testing.clock import START
from tests.support.filled_store import filled_store

pytestmark = [pytest.mark.faults, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

FULL = os.environ.get("PERDURE_FAULTS") == "full"
CALLS = ("os.", "open", "sqlite3.", "shutil.") if FULL else ("os.link", "os.rename", "os.remove")
"""Where it is killed: just before such a call, by the names of Python's audit events."""
KILLED = 9


def run_killed(backup: Path, path: Path, at: int) -> bool:
    """Restore in a process that is killed just before the n-th call; whether it came to its end before."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    calls = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal calls
        if event.startswith(CALLS) and str(path.parent) in str(arguments):
            calls += 1
            if calls == at:
                os._exit(KILLED)

    sys.addaudithook(count)
    try:
        asyncio.run(restore(backup, path, at=START, progress=lambda step, done, total: None))
    except BaseException:
        os._exit(1)
    os._exit(0)


def names_in(path: Path) -> list[str]:
    async def read() -> list[str]:
        store = await open_store(path, at=START)
        found = await store.read(lambda tx: [agent.name for agent in tx.agents.list()])
        await store.close()
        return found

    return asyncio.run(read())


@pytest.mark.slow
def test_a_restore_that_is_killed_leaves_the_old_store_or_the_new_one(tmp_path: Path) -> None:
    """At every call that makes, renames or removes a file; then the next one succeeds."""
    backup, path = tmp_path / "backup.db", tmp_path / "home" / "perdure.db"
    shutil.copyfile(filled_store(), backup)
    path.parent.mkdir()
    shutil.copyfile(filled_store(), path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE agents SET name = name || ' of old'")
        connection.commit()
    old, new = names_in(path), names_in(backup)
    whole = path.read_bytes()
    found = []
    for at in range(1, 1_000):
        path.write_bytes(whole)
        ended = run_killed(backup, path, at)
        names = names_in(path)
        assert names in (old, new), at
        found.append(names == new)
        if ended:
            break
    print(f"{at} kills, the new store was there after {sum(found)}")

    assert ended
    assert names == new
    assert not all(found[:-1])
    assert at > 4
    assert not [file.name for file in path.parent.iterdir() if "restore-" in file.name]
