"""`perdure store verify`: what differs is told and, when asked for, repaired; nothing else is touched."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from perdure import AsyncPerdure
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.testing.clock import START
from tests.support.programs import run_inside


def fill(home: Path) -> None:
    async def talk() -> None:
        async with await AsyncPerdure.open(home / "perdure.db") as perdure:
            agent = await perdure.create_agent("ada")
            await agent.send("My name is Ada.")
            await agent.archive("Ada likes trains", tags=["travel"])

    asyncio.run(talk())


def test_all_agrees(tmp_path: Path) -> None:
    """A store that was only used says so, with exit code 0; where there is none that is an error."""
    assert "there is no store yet" in run_inside(tmp_path, "store", "verify").stderr
    fill(tmp_path)
    result = run_inside(tmp_path, "store", "verify")

    assert (result.returncode, result.stderr) == (0, "")
    assert "rows of 2 agents and archives were compared.\nAll agrees.\n" in result.stdout


def test_what_differs_is_told_and_repaired(tmp_path: Path) -> None:
    """First told, with what helps; then repaired, also what only a whole new index mends; then all agrees."""
    fill(tmp_path)
    connection = sqlite3.connect(tmp_path / "perdure.db")
    connection.execute("UPDATE archives SET passage_count = 5")
    connection.execute("UPDATE passages SET text = 'Ada likes long trains', checksum = NULL")
    connection.commit()
    connection.close()
    output = run_inside(tmp_path, "store", "verify")
    assert output.returncode == 1
    assert "✗ archive-" in output.stdout and "5 passages counted, not 1" in output.stdout
    assert "1 found by words they don't have" in output.stdout
    assert "--repair" in output.stderr
    repaired = run_inside(tmp_path, "store", "verify", "--repair")
    assert (repaired.returncode, repaired.stdout.count("✓ repaired")) == (0, 2)

    assert "All agrees." in run_inside(tmp_path, "store", "verify").stdout


def test_a_repair_that_was_cut_off_is_told_and_goes_on(tmp_path: Path) -> None:
    """A new index that a dead process began is used once it is done, and not before."""
    fill(tmp_path)
    store = SqliteStore.open(tmp_path / "perdure.db", at=START)
    asyncio.run(begin(store))
    output = run_inside(tmp_path, "store", "verify")
    assert (output.returncode, output.stdout.count("is not done")) == (1, 1)
    assert "--repair` goes on" in output.stderr
    asyncio.run(talk_more(tmp_path))

    assert run_inside(tmp_path, "store", "verify", "--repair").returncode == 0
    assert "All agrees." in run_inside(tmp_path, "store", "verify").stdout
    assert "Ada likes walruses" in run_inside(tmp_path, "search", "walruses", "--agent", "ada").stdout


async def begin(store: SqliteStore) -> None:
    assert await store.write(lambda tx: tx.upkeep.rebuild_words("archive", limit=1))
    await store.close()


async def talk_more(home: Path) -> None:
    async with await AsyncPerdure.open(home / "perdure.db") as perdure:
        agent = await perdure.agent("ada")
        await agent.archive("Ada likes walruses")


def test_what_it_says_of_a_damaged_file_is_not_to_run_it_again(tmp_path: Path) -> None:
    """Pages in the middle are overwritten: it is the command that tells what is damaged."""
    fill(tmp_path)
    path = tmp_path / "perdure.db"
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4_096):
        data[page * 4_096 + 100 : page * 4_096 + 4_000] = b"\xa5" * 3_900
    path.write_bytes(data)
    result = run_inside(tmp_path, "store", "verify")

    told = result.stdout + result.stderr
    assert result.returncode == 1
    assert "perdure restore FILE" in told
    assert "store verify" not in told
