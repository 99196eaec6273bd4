"""Facts are extracted from an import only where that is asked for, and then also from an earlier one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.testing import says
from tests.features.imports import golden
from tests.support.library import open_async, open_sync
from tests.support.programs import perdure

AT = 1_700_000_000
TURIN = {"role": "user", "text": "I live in Turin.", "occurred_at": AT, "conversation": "a", "id": "1"}
TEA = {"text": "I like tea.", "created_at": AT, "id": "2"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "perdure.db", says("Good"), says("Good")) as opened:
        yield opened


def known(store: Perdure, agent: str) -> str:
    """What is known after all that waits was extracted."""
    facts, end = store.agent(agent).facts, time.monotonic() + 20
    facts.extract()
    while facts.counts().waiting:  # the background has taken it
        assert time.monotonic() < end
        time.sleep(0.02)
    return " ".join(one.fact.text for one in facts.list())


def test_what_was_imported_without_facts_is_read_only_when_they_are_asked_for(store: Perdure, tmp_path: Path) -> None:
    place = golden.write_lines(tmp_path / "x.jsonl", [TURIN, TEA])
    store.imports.run("jsonl", place)
    agent = store.agent("jsonl")
    assert agent.facts.counts().waiting == 0 and known(store, "jsonl") == ""
    agent.send("I like espresso.")
    agent.send("I like plums.", conversation=agent.conversations()[1].id)
    store.imports.run("jsonl", place)
    said = known(store, "jsonl")
    assert "espresso" in said and "plums" in said and "Turin" not in said and "tea" not in said

    report = store.imports.run("jsonl", place, facts=True)
    assert not report.has_news
    said = known(store, "jsonl")
    assert "Turin" in said and "tea" in said
    store.imports.run("jsonl", place, facts=True)
    assert store.agent("jsonl").facts.counts().waiting == 0


def test_what_was_said_here_before_an_import_is_read(store: Perdure, tmp_path: Path) -> None:
    """Also where the import comes into the same conversation and archive before the next pause."""
    place = golden.write_lines(tmp_path / "x.jsonl", [TURIN, TEA])
    store.imports.run("jsonl", place)
    agent = store.agent("jsonl")
    agent.send("I like espresso.", conversation=agent.conversations()[1].id)
    agent.archive("I like plums.")
    more = [{**TURIN, "text": "I live in Oslo.", "id": "3"}, {**TEA, "text": "I like jam.", "id": "4"}]
    store.imports.run("jsonl", golden.write_lines(place, [TURIN, TEA, *more]))
    said = known(store, "jsonl")

    assert "espresso" in said and "plums" in said
    assert not [word for word in ("Turin", "Oslo", "tea", "jam") if word in said]


def test_a_memory_that_has_changed_is_read_again_only_if_it_was_read(store: Perdure, tmp_path: Path) -> None:
    texts: dict[tuple[str, bool], str] = {}
    for number, facts in enumerate((False, True)):
        place = tmp_path / f"{number}.jsonl"
        for text in ("I live in Turin.", "I live in Oslo."):
            store.imports.run("jsonl", golden.write_lines(place, [{**TEA, "text": text}]), agent="ann", facts=facts)
            texts[text, facts] = known(store, "ann")
        store.delete_agent(store.agent("ann").id)

    assert texts["I live in Turin.", False] == texts["I live in Oslo.", False] == ""
    assert "Turin" in texts["I live in Turin.", True] and "Oslo" in texts["I live in Oslo.", True]


async def test_memories_of_mem0_give_facts_in_the_background(tmp_path: Path) -> None:
    rows = [{"id": "1", "memory": "I live in Lisbon", "user_id": "ada", "created_at": "2025-01-05T08:00:00Z"}]
    place = golden.write_json(tmp_path / "m.json", {"results": rows})
    async with await open_async(tmp_path / "perdure.db") as store:
        await store.imports.run("mem0", place, facts=True)
        facts = (await store.agent("mem0")).facts
        async with asyncio.timeout(20):
            while not (found := await facts.list()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    assert "Lisbon" in found[0].fact.text


def test_the_command_extracts_facts_of_what_is_here_already(tmp_path: Path) -> None:
    place = str(golden.write_lines(tmp_path / "x.jsonl", [TURIN]))
    perdure(tmp_path, "import", "jsonl", place, "--yes")
    before = perdure(tmp_path, "fact", "list", "jsonl", "--json")
    again = perdure(tmp_path, "import", "jsonl", place, "--facts")
    found = perdure(tmp_path, "fact", "list", "jsonl", "--json")

    assert again.returncode == 0, again.stderr
    assert "Turin" not in before.stdout and "Turin" in found.stdout, found.stderr
