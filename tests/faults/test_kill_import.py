"""`kill -9` in an import: the same import goes on there, and then nothing is missing and nothing is there twice."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from perdure import Perdure
from tests.faults.killing import moments_until_killed
from tests.features.imports import golden
from tests.features.imports.letta_server import full_world, serving
from tests.support.library import open_sync

FULL = os.environ.get("PERDURE_FAULTS") == "full"
MOMENTS = 20 if FULL else 2
SOURCES = [*golden.WRITERS, "export", "moved"]
"""`export`: a folder that `perdure export` has written; `moved`: ChatGPT's export with another branch than before."""

pytestmark = [pytest.mark.faults, pytest.mark.uses("imports"), pytest.mark.uses("exports")]


def place_of(kind: str, folder: Path) -> tuple[str, Path]:
    """The source to name, and an export of this kind."""
    if kind == "moved":
        return "chatgpt", golden.write_chatgpt(folder)
    if kind != "export":
        return kind, golden.WRITERS[kind](folder)
    with open_sync(folder / "exported.db") as store:
        store.imports.run("letta-db", golden.write_letta(folder))
        store.export(folder / "out", store.agent("Sam").id)
    return "jsonl", folder / "out"


def prepare(kind: str, address: Path) -> None:
    """Make the store in which the import is killed."""
    with open_sync(address) as store:
        if kind == "moved":
            store.imports.run("chatgpt", golden.write_chatgpt(address.parent, current="a3a"))


def run(address: Path, source: str, place: Path | str, moment: int) -> int:
    """Import in a process that is killed at this moment; return the number of moments, -1: it was killed."""
    home, program = address.parent, "importing_program"
    return moments_until_killed(program, home, address, source, place, moment, PERDURE_SCHEDULES="off")


def contents(store: Perdure) -> dict[str, Counter[tuple[str, ...]]]:
    """Agent -> its blocks, titles, messages and passages, each as often as it is there."""
    found: dict[str, Counter[tuple[str, ...]]] = {}
    for agent in store.agents():
        rows: Counter[tuple[str, ...]] = Counter(("block", one.label, one.value) for one in agent.blocks.list())
        for line in agent.conversations(limit=1_000):
            messages = agent.messages(conversation=line.id, limit=1_000)
            said = [f"{one.role} {one.occurred_at} {one.parts}" for one in messages]
            rows[("conversation", line.summary or "", *said)] += 1
        rows.update(("passage", one.text, str(one.occurred_at)) for one in agent.passages(limit=1_000))
        found[agent.name] = rows
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOURCES)
def test_an_import_that_was_killed_goes_on_without_loss_or_double(tmp_path: Path, kind: str) -> None:
    source, place = place_of(kind, tmp_path)
    (tmp_path / "whole").mkdir()
    prepare(kind, whole := tmp_path / "whole" / "perdure.db")
    count = run(whole, source, place, -1)
    with open_sync(whole) as store:
        wanted = contents(store)
    assert count > 0 and wanted

    for number in range(MOMENTS):
        moment = number * count // MOMENTS
        (folder := tmp_path / f"killed{number}").mkdir()
        prepare(kind, address := folder / "perdure.db")
        assert run(address, source, place, moment) == -1
        with open_sync(address) as store:
            plan = store.imports.plan(source, place)  # type: ignore[arg-type]
            report = store.imports.run(source, place)  # type: ignore[arg-type]
            again = store.imports.run(source, place)  # type: ignore[arg-type]
            found = contents(store)

        assert found == wanted, moment
        assert (plan.new, again.new) == (report.new, 0)


SERVER_MOMENTS = 20 if FULL else 3


@pytest.mark.slow
def test_a_copy_of_a_server_that_was_killed_goes_on_without_loss_or_double(tmp_path: Path) -> None:
    """Agents, blocks, messages and passages are those of a copy that nobody has killed."""
    with serving(full_world(rounds=133 if FULL else 60)) as url:
        (tmp_path / "whole").mkdir()
        whole = tmp_path / "whole" / "perdure.db"
        count = run(whole, "letta", url, -1)
        with open_sync(whole) as store:
            wanted = server_contents(store)
        assert count > 20 and wanted

        for number in range(SERVER_MOMENTS):
            moment = number * count // SERVER_MOMENTS
            (folder := tmp_path / f"killed{number}").mkdir()
            address = folder / "perdure.db"
            assert run(address, "letta", url, moment) == -1
            with open_sync(address) as store:
                plan, report = store.imports.plan_server(url), store.imports.run_server(url)
                again, found = store.imports.run_server(url), server_contents(store)

            assert found == wanted, moment
            assert plan.counts == report.counts and not again.has_news


def server_contents(store: Perdure) -> Counter[tuple[str, ...]]:
    """All that a copy of a server has brought, each as often as it is there."""
    found: Counter[tuple[str, ...]] = Counter()
    for agent in store.agents():
        found.update((agent.id, "block", one.id, one.label, one.value) for one in agent.blocks.list())
        for line in agent.conversations(limit=1_000):
            messages = agent.messages(conversation=line.id, limit=5_000)
            said = [f"{one.role} {one.occurred_at} {one.parts}" for one in messages]
            name = "" if (line.summary or "").startswith("In group") else line.id
            found[(agent.id, "conversation", name if line.summary else "", *said)] += 1
        found.update((agent.id, "passage", one.id, one.text) for one in agent.passages(limit=1_000))
        found.update((agent.id, "schedule", one.id) for one in agent.schedules.list())
        for folder in agent.files.folders():
            found.update((agent.id, "file", folder.name, one.name) for one in folder.files())
    found.update(("group", one.id) for one in store.groups.list())
    found.update(("tool", one.spec.name) for one in store.tools.list(types=["custom"]))
    found.update(("server", one.name) for one in store.mcp.list())
    return found
