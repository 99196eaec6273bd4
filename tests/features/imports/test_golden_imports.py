"""Exports of each program: what they become, and that a second import adds nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure
from perdure.features.imports.common.values import ImportReport
from tests.features.imports import golden
from tests.support.library import open_sync

COUNTS = {
    "chatgpt": (2, 8, 0),
    "claude": (1, 4, 4),
    "mem0": (0, 0, 2),
    "zep": (1, 3, 2),
    "letta-db": (1, 4, 1),
    "markdown": (0, 0, 5),
    "jsonl": (2, 3, 1),
}
"""Source -> its conversations, messages and memories."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "perdure.db") as opened:
        yield opened


def news(report: ImportReport) -> tuple[int, int, int]:
    """How many conversations, messages and memories are new."""
    return report.conversations.new, report.messages.new, report.memories.new


def said(store: Perdure, agent: str) -> list[tuple[str, str]]:
    """Role and text of all messages of an agent, in their order."""
    return [(one.role, one.text) for one in store.agent(agent).messages(limit=1_000)]


@pytest.mark.parametrize("source", COUNTS)
def test_an_import_does_what_its_plan_says_and_a_second_one_adds_nothing(
    store: Perdure, tmp_path: Path, source: Any
) -> None:
    place = golden.WRITERS[source](tmp_path)

    plan = store.imports.plan(source, place)
    assert not store.agents()
    first = store.imports.run(source, place)
    (agent,) = store.agents()
    shape = [(one.id, one.text) for one in agent.messages(limit=1_000)]
    again, second = store.imports.plan(source, place), store.imports.run(source, place)

    assert news(plan) == news(first) == COUNTS[source]
    assert news(again) == news(second) == (0, 0, 0)
    assert (second.messages.already, second.memories.already) == COUNTS[source][1:]
    assert [(one.id, one.text) for one in agent.messages(limit=1_000)] == shape
    assert plan.left_out == first.left_out == second.left_out


def test_chatgpt_follows_the_branch_that_is_shown(store: Perdure, tmp_path: Path) -> None:
    store.imports.run("chatgpt", golden.write_chatgpt(tmp_path))
    agent = store.agent("chatgpt")
    trip, quiet = agent.conversations()[1:]

    assert [one.text for one in agent.messages(conversation=trip.id)] == [
        "[image]\n\nWhere is this? 🗺️\n\n[file trip.pdf]",
        "[tool python: find('place')]",
        "[tool python: Lisbon]",
        "This is Lisbon.",
        "What shall I eat there?",
        "Eat pastéis de nata.",
    ]
    assert (trip.summary, f"{trip.created_at:%Y-%m-%d}") == ("A trip 🇵🇹", "2024-11-19")
    assert agent.messages(conversation=quiet.id)[1].text == "An answer \ud83d with half a pair and \u0000 in it"
    assert agent.search("nata")[0].message.text == "Eat pastéis de nata."
    assert not [one for one in agent.search("zeppelin tavern") if "zeppelin" in one.message.text]


def test_claude_brings_branches_attachments_projects_and_memories(store: Perdure, tmp_path: Path) -> None:
    store.imports.run("claude", golden.write_claude(tmp_path))
    texts = [text for _, text in said(store, "claude")]
    found = store.agent("claude").search_archive("quinces")

    assert texts == [
        "Read this old letter\n\n[file letter.txt]\n\nDear Ada, the key is under the mat.",
        "[tool search: q = mat]\n\n[tool search: found]\n\nIt speaks of a key.",
        "Where is the key?\n\n[file map.png]",
        "Under the mat.",
    ]
    assert {"plan.md\n\nPlant quinces in March.", "Ada likes quinces."} <= {one.passage.text for one in found}


def test_letta_brings_agents_with_blocks_messages_and_passages(store: Perdure, tmp_path: Path) -> None:
    report = store.imports.run("letta-db", golden.write_letta(tmp_path))
    sam = store.agent("Sam")

    assert sam.blocks.get("human").value == "Ada is a pilot."
    assert [one.text for one in sam.messages() if one.role == "user"] == ["I flew to Oslo ✈️", "Old column text"]
    assert [one.passage.text for one in sam.search_archive("Cessna")] == ["Ada flies a Cessna"]
    assert report.left_out == {"agents that were deleted there": 1, "passages of files, which are uploaded anew": 1}


def test_sections_of_markdown_become_passages_with_their_dates(store: Perdure, tmp_path: Path) -> None:
    store.imports.run("markdown", golden.write_markdown(tmp_path))
    found = store.agent("markdown").search_archive("snowman")

    assert found[0].passage.text == "Diary > Morning\n\nWe built a snowman.\n\n```sh\n# no heading\n```"
    assert found[0].passage.tags == ("snow", "home")
    assert f"{found[0].passage.occurred_at:%Y-%m-%d}" == "2024-12-24"


def test_facts_of_zep_say_when_they_were_true(store: Perdure, tmp_path: Path) -> None:
    store.imports.run("zep", golden.write_json(tmp_path / "zep.json", golden.ZEP))
    (found,) = store.agent("zep").search_archive("kettle")

    assert found.passage.text == "Ada owns a kettle (true from 2024-01-01 until 2024-06-01)"


def test_a_branch_that_was_left_since_is_never_recalled(store: Perdure, tmp_path: Path) -> None:
    """The first export shows the branch with the zeppelin, the second another one, the third the first again."""
    store.imports.run("chatgpt", golden.write_chatgpt(tmp_path, current="a3a"))
    agent = store.agent("chatgpt")
    assert "zeppelin" in agent.search("zeppelin")[0].message.text

    plan = store.imports.plan("chatgpt", golden.write_chatgpt(tmp_path))
    report = store.imports.run("chatgpt", golden.write_chatgpt(tmp_path))
    assert (report.withdrawn, report.messages.new) == (plan.withdrawn, plan.messages.new) == (3, 1)
    assert not [one for one in agent.search("zeppelin") if "zeppelin" in one.message.text]
    assert "zeppelin" not in json.dumps([text for _, text in said(store, "chatgpt")])
    trip = agent.conversations()[1]
    assert agent.messages(conversation=trip.id)[-1].text == "Eat pastéis de nata."

    plan = store.imports.plan("chatgpt", golden.write_chatgpt(tmp_path, current="a3a"))
    report = store.imports.run("chatgpt", golden.write_chatgpt(tmp_path, current="a3a"))
    assert (report.withdrawn, report.messages.new) == (plan.withdrawn, plan.messages.new) == (1, 3)
    third = [text for _, text in said(store, "chatgpt")]
    assert "The zeppelin of the tavern is red." in third
    assert "Eat pastéis de nata." not in third


def test_what_was_deleted_here_is_not_brought_back(store: Perdure, tmp_path: Path) -> None:
    place = golden.write_chatgpt(tmp_path)
    store.imports.run("chatgpt", place)
    agent = store.agent("chatgpt")
    agent.delete_conversation(agent.conversations()[1].id)
    report = store.imports.run("chatgpt", place)

    assert report.left_out["conversations that were deleted here"] == 1
    assert len(agent.conversations()) == 2

    memories = golden.write_json(tmp_path / "mem0.json", golden.MEM0)
    store.imports.run("mem0", memories)
    mem0 = store.agent("mem0")
    mem0.delete_passage(mem0.search_archive("theremin")[0].passage.id)
    report = store.imports.run("mem0", memories)

    assert report.left_out["memories that were deleted here"] == 1
    assert not [one for one in mem0.search_archive("theremin") if "theremin" in one.passage.text]


def test_a_forgotten_text_stays_forgotten(store: Perdure, tmp_path: Path) -> None:
    place = golden.write_chatgpt(tmp_path)
    store.imports.run("chatgpt", place)
    agent = store.agent("chatgpt")
    agent.forget("pastéis de nata")
    store.imports.run("chatgpt", place)
    at = "2025-01-01T00:00:00Z"
    lines = [{"role": "user", "text": "I want pastéis de nata now", "occurred_at": at}]
    lines += [{"text": "likes pastéis de nata", "created_at": at}]
    store.imports.run("jsonl", golden.write_lines(tmp_path / "l.jsonl", lines), agent="chatgpt")

    assert "nata" not in json.dumps(said(store, "chatgpt"))
    assert not [one for one in agent.search_archive("nata") if "nata" in one.passage.text]


def test_a_message_that_was_forgotten_is_not_there_a_second_time(store: Perdure, tmp_path: Path) -> None:
    """Also without ids at the source, and what tools have been given and said stays forgotten, too."""
    at = "2024-01-01T00:00:00Z"
    lines = [
        {"role": "user", "name": "Ann", "text": text, "occurred_at": at} for text in ("PIN 4711", "hello", "hello")
    ]
    call = {"type": "tool_call", "call_id": "c1", "name": "look", "arguments": '{"pin": "4711"}'}
    place = golden.write_lines(tmp_path / "l.jsonl", lines)
    store.imports.run("jsonl", place)
    agent = store.agent("jsonl")
    agent.forget("4711")
    count = len(said(store, "jsonl"))
    again = store.imports.run("jsonl", place)

    assert (again.new, again.messages.already, len(said(store, "jsonl"))) == (0, 3, count)
    result = {"type": "tool_result", "call_id": "c1", "name": "look", "text": "4711"}
    rows = [
        {"role": role, "parts": [part], "occurred_at": at} for role, part in (("assistant", call), ("tool", result))
    ]
    golden.write_lines(place, [*lines, *rows])
    assert store.imports.run("jsonl", place).new == 2
    assert "4711" not in repr([(one.name, one.parts) for one in agent.messages()])


def test_a_memory_that_was_changed_at_the_source_is_changed_here_but_not_over_a_person_s_change(
    store: Perdure, tmp_path: Path
) -> None:
    place = golden.write_markdown(tmp_path)
    store.imports.run("markdown", place)
    agent = store.agent("markdown")
    agent.update_passage(agent.search_archive("soup")[0].passage.id, text="Mine now")
    diary = place / "diary.md"
    diary.write_text(diary.read_text("utf-8").replace("snowman", "snow castle").replace("Soup", "Broth"), "utf-8")
    plan, report = store.imports.plan("markdown", place), store.imports.run("markdown", place)

    assert (plan.changed, report.changed, report.memories.new, plan.has_news) == (1, 1, 0, True)
    assert "snow castle" in agent.search_archive("castle")[0].passage.text
    assert not [one for one in agent.search_archive("broth") if "Broth" in one.passage.text]
    assert not store.imports.plan("markdown", place).has_news


def test_tags_and_metadata_that_are_too_large_are_cut(store: Perdure, tmp_path: Path) -> None:
    memory: dict[str, Any] = {"id": "1", "memory": "x y", "created_at": 1, "metadata": {"a": "b" * 9_000_000}}
    memory["categories"] = ["t" * 9_000] * 500
    report = store.imports.run("mem0", golden.write_json(tmp_path / "m.json", [memory]))

    assert report.memories.new == 1


def test_calls_without_results_are_left_out_so_that_the_history_can_be_sent(store: Perdure, tmp_path: Path) -> None:
    def line(role: str, *parts: Any) -> dict[str, Any]:
        return {"role": role, "occurred_at": "2025-01-01T00:00:00Z", "parts": list(parts)}

    def call(id_: str) -> dict[str, Any]:
        return {"type": "tool_call", "call_id": id_, "name": "note", "arguments": "{}"}

    def result(id_: str) -> dict[str, Any]:
        return {"type": "tool_result", "call_id": id_, "name": "note", "text": "ok"}

    text = {"type": "text", "text": "hm"}
    lines = [line("assistant", text, call("a"), call("b")), line("tool", result("a")), line("tool", result("c"))]
    lines += [line("assistant", call("d")), line("user", text), line("tool", result("d")), line("assistant", call("a"))]
    report = store.imports.run("jsonl", golden.write_lines(tmp_path / "x.jsonl", lines))
    rows = store.agent("jsonl").messages(conversation=store.agent("jsonl").conversations()[1].id)

    assert [[part.type for part in one.parts] for one in rows] == [["text", "tool_call"], ["tool_result"], ["text"]]
    assert report.left_out["calls of tools without a result, or results without a call"] == 5
