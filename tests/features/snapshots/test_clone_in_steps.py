"""A clone is made in many transactions: others write between them, and whatever ends it leaves nothing of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.features.snapshots import cloning
from perdure.library.agent import AsyncAgent
from tests.support.library import open_async

WORDS = "walrus otter heron lynx badger"


async def open_ann(path: Path) -> tuple[AsyncPerdure, AsyncAgent]:
    """A store with an agent that has said something, with versions of its blocks and with passages."""
    perdure = await open_async(path)
    agent = await perdure.create_agent("ann", human="Ann")
    await agent.send("one")
    for word in WORDS.split():
        await agent.blocks.update("human", f"Ann saw a {word}.")
        await agent.archive(f"A {word} was here. {'x' * 100_000}")
    return perdure, agent


def between(perdure: AsyncPerdure, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], Awaitable[Any]]) -> None:
    """Have `act` called before each transaction that writes from now on, with its number; not for those of its own."""
    store, count, is_acting = perdure.app.ports.store, 0, False
    write = store.write

    async def acting(*unit: Any, **more: Any) -> Any:
        nonlocal count, is_acting
        if not is_acting:
            count, is_acting = count + 1, True
            try:
                await act(count)
            finally:
                is_acting = False
        return await write(*unit, **more)

    monkeypatch.setattr(store, "write", acting)


async def test_what_is_written_meanwhile_is_not_in_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a message nor a block's new value nor a passage; and the original has all of them."""
    perdure, agent = await open_ann(tmp_path / "perdure.db")
    async with perdure:

        async def write(count: int) -> None:
            """Write something else each time."""
            if count > 2:  # the first transaction takes the moment
                await agent.send(f"later {count}")
                await agent.blocks.update("human", f"later {count}")
                await agent.archive(f"later {count}")

        between(perdure, monkeypatch, write)
        made = await agent.snapshots.clone("ben")
        monkeypatch.undo()
        clone = await perdure.agent("ben")
        texts = [hit.passage.text for hit in await clone.search_archive("was here", limit=50)]

        assert made.left == []
        assert [one.text for one in await clone.messages()] == ["one", "OK."]
        assert (await clone.blocks.get("human")).value == "Ann saw a badger."
        assert len(await clone.blocks.history("human")) == 6
        assert sorted(text.split()[1] for text in texts) == sorted(WORDS.split())
        assert len(await agent.messages()) > 8


async def test_what_is_forgotten_meanwhile_is_in_no_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the last transaction either: the clone is begun again."""
    perdure, agent = await open_ann(tmp_path / "perdure.db")
    async with perdure:
        store, is_forgotten = perdure.app.ports.store, False
        write = store.write

        async def forgetting(unit: Any, *rest: Any, **more: Any) -> Any:
            """Forget a word before the last transaction."""
            nonlocal is_forgotten
            if unit is cloning._finish and not is_forgotten:
                is_forgotten = True
                await agent.forget("badger")
            return await write(unit, *rest, **more)

        monkeypatch.setattr(store, "write", forgetting)
        await agent.snapshots.clone("ben")
        monkeypatch.undo()

        assert is_forgotten
        clone = await perdure.agent("ben")
        assert "badger" not in (await clone.blocks.get("human")).value
        assert await clone.search_archive("badger") == []


async def test_what_a_killed_clone_left_goes_with_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its blocks, their versions, and its passages."""
    perdure, agent = await open_ann(tmp_path / "perdure.db")
    async with perdure:
        once = counts(tmp_path / "perdure.db")
        store = perdure.app.ports.store
        write, is_dead = store.write, False

        async def dying(unit: Any, *rest: Any, **more: Any) -> Any:
            """End with the last transaction of the clone, and write nothing then."""
            nonlocal is_dead
            is_dead = is_dead or unit is cloning._finish
            if is_dead:
                raise ConnectionError
            return await write(unit, *rest, **more)

        monkeypatch.setattr(store, "write", dying)
        with pytest.raises(ConnectionError):
            await agent.snapshots.clone("ben")
        monkeypatch.undo()
        left = counts(tmp_path / "perdure.db")
        names = [archive.name for archive in await perdure.archives.list()]
        monkeypatch.setattr(cloning, "GIVEN_UP_AFTER", -cloning.GIVEN_UP_AFTER)
        await agent.snapshots.clone("carl")
        twice = {table: 2 * count for table, count in once.items()}

        assert names == ["ann's archive"]
        assert left == twice
        assert counts(tmp_path / "perdure.db") == twice


def counts(path: Path) -> dict[str, int]:
    """How many rows the tables have."""
    tables = ("agents", "blocks", "block_versions", "passages", "archives")
    with closing(sqlite3.connect(path)) as connection:
        return {table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables}
