"""Which agent gets an import: the one that was asked for, else the one that an earlier import has made."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from perdure.engine.records.leases import process_owner
from perdure.features.imports import units
from perdure.features.imports.sources.items import COMPANIONS
from perdure.features.imports.sources.plain import hash_of
from tests.features.imports import golden
from tests.support.library import open_async, open_sync


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The export of an agent `sam` with thirty messages."""
    with open_sync(tmp_path / "exported.db") as store:
        agent = store.create_agent("sam", tags=["mine"])
        agent.import_messages([("user", None, f"hello {number}", "2024-01-01T00:00:00Z") for number in range(30)])
        store.export(tmp_path / "out", agent.id)
    return tmp_path / "out"


def test_the_agent_that_was_asked_for_gets_it(exported: Path, tmp_path: Path) -> None:
    """Also where another one has it already."""
    with open_sync(tmp_path / "perdure.db") as store:
        bob = store.create_agent("bob")
        first = store.imports.run("jsonl", exported)
        for name in ("bob", "new", bob.id):
            plan = store.imports.plan("jsonl", exported, agent=name)
            report = store.imports.run("jsonl", exported, agent=name)
            assert [*plan.agents] == [*report.agents] == ["new" if name == "new" else "bob"]
            assert plan.messages.new == report.messages.new == (0 if name == bob.id else 30)
        again = store.imports.run("jsonl", exported)

        assert {one.name for one in store.agents()} == {"sam", "bob", "new"}
        assert (again.agents, again.new) == (first.agents, 0)
        assert store.agent("sam").info.tags == ("mine",)


@pytest.mark.uses("groups")
def test_a_companion_is_made_anew_with_its_agent(tmp_path: Path) -> None:
    """Named after it, and not after the name that the agent had while it was imported."""
    with open_sync(tmp_path / "exported.db") as store:
        store.create_agent("sam", sleeptime=True)
        store.export(tmp_path / "out")
    with open_sync(tmp_path / "perdure.db") as store:
        report = store.imports.run("jsonl", tmp_path / "out")
        names = {one.name for one in store.agents()}
        persona = store.agent("sam-sleeptime").blocks.get("memory_persona").value

    assert names == {"sam", "sam-sleeptime"}
    assert report.left_out == {COMPANIONS: 1}
    assert "sam" in persona and "imported" not in persona


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["letta", "export"])
@pytest.mark.parametrize("name", [None, "one"])
async def test_two_imports_at_once_make_one_agent(exported: Path, tmp_path: Path, kind: str, name: str | None) -> None:
    source, place = ("letta-db", golden.write_letta(tmp_path)) if kind == "letta" else ("jsonl", exported)
    async with await open_async(tmp_path / "perdure.db") as store:
        reports = await asyncio.gather(
            *(store.imports.run(source, place, agent=name) for _ in range(4))  # type: ignore[arg-type]
        )
        (agent,) = await store.agents()

        assert {tuple(one.agents.items()) for one in reports} == {((agent.name, agent.id),)}
        assert sum(one.messages.new for one in reports) == reports[0].messages.total


async def test_what_a_killed_import_has_left_is_deleted_by_the_next_one(exported: Path, tmp_path: Path) -> None:
    """At once where its process is known to be dead; what a living one makes, and what only looks like it, stays."""
    done = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await done.wait()
    machine, pid, start, _ = process_owner().rsplit("/", 3)
    mine = f"sam - being imported by process {pid} {start} {hash_of(machine)[:6]} ab12"
    left = f"sam - being imported by process {done.pid} 1 {hash_of(machine)[:6]} ab12"
    names = [mine, left, "sam - being imported by process of mine", left.replace(hash_of(machine)[:6], "123456")]
    async with await open_async(tmp_path / "perdure.db") as store:
        for name in names:
            await store.create_agent(name)
        await store.imports.run("jsonl", exported)

        assert {one.name for one in await store.agents()} == {"sam", *names} - {left}


async def test_an_import_that_fails_leaves_no_agent(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    async with await open_async(tmp_path / "perdure.db") as store:
        monkeypatch.setattr(units, "claim_agent", fail)
        with pytest.raises(OSError, match="no space"):
            await store.imports.run("jsonl", exported)

        assert await store.agents() == []
