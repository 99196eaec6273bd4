"""Lines of JSON as programs write them: without times, and with those of several conversations by turns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure
from tests.features.imports import golden
from tests.support.library import open_sync

AT = "2024-01-01T00:00:00Z"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "perdure.db") as opened:
        yield opened


def test_conversations_by_turns_are_counted_once(store: Perdure, tmp_path: Path) -> None:
    """Also where they have equal messages."""
    lines = [{"role": "user", "text": "ok", "occurred_at": AT, "conversation": "ab"[number % 2]} for number in range(6)]
    place = golden.write_lines(tmp_path / "x.jsonl", lines)
    plan, first, again = (do("jsonl", place) for do in (store.imports.plan, store.imports.run, store.imports.run))

    for report in (plan, first):
        assert (report.conversations.new, report.conversations.already, report.messages.new) == (2, 0, 6)
    assert (again.conversations.already, again.messages.already, again.has_news) == (2, 6, False)


def test_of_two_messages_with_one_id_none_is_lost(store: Perdure, tmp_path: Path) -> None:
    """A line that is there twice is one message."""
    lines = [{"role": "user", "text": text, "occurred_at": AT, "id": "1"} for text in ("one", "two", "one", "two")]
    place = golden.write_lines(tmp_path / "x.jsonl", lines)
    first, again = store.imports.run("jsonl", place), store.imports.run("jsonl", place)
    agent = store.agent("jsonl")

    assert [one.text for one in agent.messages(conversation=agent.conversations()[1].id)] == ["one", "two"]
    assert (first.messages.new, again.messages.new, again.has_news) == (2, 0, False)


def test_lines_without_a_time_have_that_of_their_neighbour_or_of_the_file(store: Perdure, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"role": "user", "text": f"m{number}", "conversation": "a"} for number in range(3)]
    rows[1]["occurred_at"] = AT
    rows += [{"role": "user", "text": "ok"}, {"role": "user", "text": "ok"}, {"memory": "likes tea"}]
    place = golden.write_lines(tmp_path / "x.jsonl", rows)
    os.utime(place, (1_600_000_000, 1_600_000_000))
    store.imports.run("jsonl", place)
    agent = store.agent("jsonl")
    times = [
        str(one.occurred_at)[:10] for talk in agent.conversations() for one in agent.messages(conversation=talk.id)
    ]

    assert times == ["2024-01-01"] * 3 + ["2020-09-13"] * 2
    assert str(agent.passages()[0].occurred_at)[:10] == "2020-09-13"
    golden.write_lines(place, [*rows, {"role": "user", "text": "new"}])
    assert store.imports.run("jsonl", place).new == 1
