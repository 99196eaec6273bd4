"""A fact in the body of a note is found among hundreds of other notes, though the title says nothing of it."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.core.text.words import stems
from perdure.features.notes.values import note_kinds
from tests.support.library import open_sync
from tests.support.programs import run_inside

NOTES: Sequence[Mapping[str, str]] = tomllib.loads(Path(__file__).with_name("facts.toml").read_text("utf-8"))["note"]
OTHERS, WORDS = 300, 14
SHOWN = 3
"""The note is among so many hits."""


def fields_of(note: Mapping[str, str]) -> Mapping[str, str]:
    """The fields of a note of the file."""
    return {name: text for name, text in note.items() if name not in ("kind", "title", "query")}


def fill(store: Perdure) -> dict[str, str]:
    """Write the notes among others, whose texts are mixed from the same words; return the id of each by its query."""
    mixed, ids = random.Random(7), dict[str, str]()
    words = [word for note in NOTES for text in fields_of(note).values() for word in text.split()]
    agent = store.create_agent("ann")
    every = max(1, OTHERS // len(NOTES))
    for number, note in enumerate(NOTES):
        for other in range(every):
            kind = mixed.choice(list(note_kinds().values()))
            text = " ".join(mixed.sample(words, WORDS))
            agent.notes.add(kind.name, f"Other note {number * every + other}", {next(iter(kind.fields)): text})
        written, _ = agent.notes.add(note["kind"], note["title"], fields_of(note))
        ids[note["query"]] = written.id
    return ids


def test_the_words_of_the_queries_stand_in_no_title() -> None:
    """Neither in the same form nor in another one."""
    assert len(NOTES) == len({note["query"] for note in NOTES}) == 50
    for note in NOTES:
        assert not {*stems(note["title"])} & {*stems(note["query"])}, note["title"]


@pytest.mark.slow
def test_fifty_of_fifty_facts_are_found_by_the_library_and_the_command(tmp_path: Path) -> None:
    with open_sync(tmp_path / "perdure.db") as store:
        ids = fill(store)
        agent = store.agent("ann")
        assert agent.notes.count() == len(NOTES) + OTHERS
        found = {query: [hit.note.id for hit in agent.notes.search(query, limit=SHOWN)] for query in ids}
    printed = {}
    for query in ids:
        done = run_inside(tmp_path, "note", "search", query, "--agent", "ann", "--limit", str(SHOWN), "--json")
        printed[query] = [note["id"] for note in json.loads(done.stdout)]

    assert [query for query, id_ in ids.items() if id_ not in found[query]] == []
    assert [query for query, id_ in ids.items() if id_ not in printed[query]] == []
