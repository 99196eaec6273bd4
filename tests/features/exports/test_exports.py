"""Agents as folders: what stands in them, and that reading them back loses nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, Perdure
from perdure.core.ids import AgentId
from perdure.testing import calls, says
from tests.features.imports import golden
from tests.support.library import open_sync

COUNT = 10_000 if os.environ.get("PERDURE_FAULTS") == "full" else 1_000

pytestmark = pytest.mark.uses("imports")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Perdure]:
    answers = (calls("archival_memory_insert", content="Ada has a boat"), says("Noted ⛵"))
    with open_sync(tmp_path / "perdure.db", *answers) as opened:
        yield opened


def filled(store: Perdure) -> AgentId:
    """An agent with a block, a chat with a tool, imported history, and passages; its id."""
    agent = store.create_agent("Ann' é", human="Ada is here")
    agent.send("I have a boat")
    agent.archive("A passage 🐚", tags=["sea"])
    line = agent.new_conversation(summary="CON: ../../etc")
    agent.import_messages([("user", "Ada", "x\ud83dy\0z", "2024-01-01T00:00:00Z")], conversation=line.id)
    return agent.id


def test_an_export_that_is_read_back_has_the_same_content(store: Perdure, tmp_path: Path) -> None:
    agent_id = filled(store)
    (first,) = store.export(tmp_path / "out", agent_id)
    with open_sync(tmp_path / "other.db") as other:
        report = other.imports.run("jsonl", tmp_path / "out")
        (agent,) = other.agents()
        (second,) = other.export(tmp_path / "again", agent.id)
        again = other.imports.run("jsonl", tmp_path / "out")
        assert (agent.name, agent.blocks.get("human").value) == ("Ann' é", "Ada is here")

    assert (first.messages, first.passages, first.conversations) == (report.messages.new, report.memories.new, 2)
    assert first.content_hash == second.content_hash
    assert again.new == 0


def test_what_a_reset_took_out_of_view_comes_back_out_of_view(tmp_path: Path) -> None:
    def texts(agent: Any, **how: bool) -> list[str]:
        return [one.text for one in agent.messages(**how) if one.kind == "message"]

    with open_sync(tmp_path / "perdure.db", *map(says, ("one", "two", "three"))) as store:
        agent = store.create_agent("ann")
        agent.send("My code is 4711")
        agent.reset()
        agent.send("second words")
        (first,) = store.export(tmp_path / "out", agent.id)
        with open_sync(tmp_path / "other.db") as other:
            other.imports.run("jsonl", tmp_path / "out")
            again = other.imports.run("jsonl", tmp_path / "out")
            there = other.agent("ann")
            (second,) = other.export(tmp_path / "again", there.id)
            here = other.create_agent("bob")
            here.import_messages([("user", None, "own words", "2024-01-01T00:00:00Z")])
            beside = other.imports.run("jsonl", tmp_path / "out", agent="bob")

            assert texts(there) == ["second words", "two"]
            assert texts(there, reset=True) == ["My code is 4711", "one", "second words", "two"]
            assert texts(here) == ["own words", "second words", "two"]
        lines = [json.loads(line) for line in (tmp_path / "out" / "messages.jsonl").read_text().splitlines()]
        agent.archive("The code 4711 is Ada's")
        agent.forget("4711")
        store.export(tmp_path / "clean", agent.id)

    assert [one.get("reset", False) for one in lines[1:]] == [True, True, False, False]
    assert first.content_hash == second.content_hash and again.new == 0
    assert [*beside.left_out.values()] == [2]
    assert not [path for path in (tmp_path / "clean").rglob("*") if path.is_file() and "4711" in path.read_text()]


def test_calls_that_wait_and_empty_conversations_come_back(tmp_path: Path) -> None:
    def pay(amount: str) -> str:
        """Pay.

        Args:
            amount: how much.
        """
        return f"paid {amount}"

    with open_sync(tmp_path / "a.db", says("Hi"), calls("pay", amount="5"), tools=[pay]) as store:
        agent = store.create_agent("ann", tools=["pay"])
        agent.require_approval("pay")
        agent.new_conversation()
        agent.send("hello")
        assert agent.send("pay 5").stop_reason == "requires_approval"
        (first,) = store.export(tmp_path / "one", agent.id)
    with open_sync(tmp_path / "b.db", says("Paid"), tools=[pay]) as other:
        plan, report = other.imports.plan("jsonl", tmp_path / "one"), other.imports.run("jsonl", tmp_path / "one")
        (second,) = other.export(tmp_path / "two", other.agent("ann").id)
        again = other.imports.run("jsonl", tmp_path / "one")
        (call,) = other.agent("ann").pending()
        reply = other.agent("ann").approve(call.call_id)
        assert reply is not None and reply.text == "Paid"
        after = other.imports.run("jsonl", tmp_path / "one")

    assert (plan.messages.new, report.messages.new, report.left_out) == (4, 4, {})
    assert (again.has_news, after.has_news, after.left_out) == (False, False, {})
    assert first.content_hash == second.content_hash and second.conversations == 2


def test_an_agent_that_moved_knows_what_it_got_from_other_programs(tmp_path: Path) -> None:
    """A later import from there adds only what is new."""
    chats = golden.write_chatgpt(tmp_path)
    notes = golden.write_markdown(tmp_path)
    with open_sync(tmp_path / "a.db") as store:
        store.imports.run("chatgpt", chats, agent="ann")
        store.imports.run("markdown", notes, agent="ann")
        store.export(tmp_path / "out", store.agent("ann").id)
    with open_sync(tmp_path / "b.db") as other:
        other.imports.run("jsonl", tmp_path / "out")
        agent = other.agent("ann")
        for source, place in (("chatgpt", chats), ("markdown", notes)):
            plan = other.imports.plan(source, place, agent="ann")  # type: ignore[arg-type]
            report = other.imports.run(source, place, agent="ann")  # type: ignore[arg-type]
            assert (plan.has_news, report.has_news) == (False, False)
        assert agent.info.tags == () and len(agent.conversations()) == 3
        texts = golden.chatgpt()
        texts[0]["mapping"]["n1"] = golden.node("n1", "a2b", "user", "And what shall I drink?", at=golden.DAY + 500)
        texts[0]["current_node"] = "n1"
        place = golden.write_json(tmp_path / "conversations.json", texts)
        assert other.imports.run("chatgpt", place, agent="ann").messages.new == 1
        assert other.imports.run("chatgpt", place, agent="ann").has_news is False
        assert other.imports.run("jsonl", tmp_path / "out").new == 0


@pytest.mark.slow
def test_a_message_with_large_pictures_comes_back(store: Perdure, tmp_path: Path) -> None:
    """Its line is longer than one of another program may be."""
    store.export(tmp_path / "out", filled(store))
    lines = (tmp_path / "out" / "messages.jsonl").read_text().splitlines()
    row = json.loads(lines[1])
    row["parts"].append({"type": "image", "media_type": "image/png", "data": "A" * (21 << 20)})
    (tmp_path / "out" / "messages.jsonl").write_text("\n".join([lines[0], json.dumps(row), *lines[2:]]))
    with open_sync(tmp_path / "other.db") as other:
        other.imports.run("jsonl", tmp_path / "out")
        (again,) = other.export(tmp_path / "again", other.agents()[0].id)

    assert (again.folder / "messages.jsonl").stat().st_size > 21 << 20


@pytest.mark.slow
def test_a_passage_with_large_metadata_comes_back(store: Perdure, tmp_path: Path) -> None:
    """Its line is longer than one of an archive may be that somebody else has written."""
    agent = store.create_agent("ann")
    agent.archive("long")
    (first,) = store.export(tmp_path / "out", agent.id)
    place = tmp_path / "out" / "passages.jsonl"
    row = json.loads(place.read_text())
    place.write_text(json.dumps(row | {"metadata": {"all": "é" * (3 << 20)}}))
    with open_sync(tmp_path / "other.db", metadata_limit_chars=1 << 30) as other:
        other.imports.run("jsonl", tmp_path / "out")
        (again,) = other.export(tmp_path / "again", other.agents()[0].id)

    assert (again.folder / "passages.jsonl").stat().st_size > 16 << 20 and first.passages == again.passages


def test_people_can_read_it(store: Perdure, tmp_path: Path) -> None:
    store.export(tmp_path / "out", filled(store))
    out = tmp_path / "out"
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())

    assert names == [
        "agent.json",
        "archival.md",
        "conversations/000-first-conversation.md",
        "conversations/001-CON-etc.md",
        "export.json",
        "memory.md",
        "messages.jsonl",
        "passages.jsonl",
    ]
    assert "## human" in (out / "memory.md").read_text("utf-8")
    assert "I have a boat" in (out / "conversations" / "000-first-conversation.md").read_text("utf-8")
    assert "A passage 🐚" in (out / "archival.md").read_text("utf-8")


def test_a_folder_that_is_no_export_is_never_replaced(store: Perdure, tmp_path: Path) -> None:
    agent_id = filled(store)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInput, match="not empty"):
        store.export(tmp_path / "mine", agent_id)
    with pytest.raises(InvalidInput, match="not an export"):
        store.export(tmp_path / "mine", agent_id, overwrite=True)
    store.export(tmp_path / "out", agent_id)
    with pytest.raises(InvalidInput, match="--overwrite"):
        store.export(tmp_path / "out", agent_id)
    store.export(tmp_path / "out", agent_id, overwrite=True)

    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    assert sorted(path.name for path in tmp_path.iterdir() if "part" in path.name or "old" in path.name) == []


def test_all_agents_have_folders_of_their_own(store: Perdure, tmp_path: Path) -> None:
    filled(store)
    store.create_agent("nul")
    store.create_agent("Ann é")
    written = store.export(tmp_path / "out")

    assert [one.folder.name for one in written] == ["Ann-é", "agent", "Ann-é-2"]
    assert [one["folder"] for one in json.loads((tmp_path / "out" / "export.json").read_text())["agents"]] == [
        "Ann-é",
        "agent",
        "Ann-é-2",
    ]
    with open_sync(tmp_path / "other.db") as other:
        other.imports.run("jsonl", tmp_path / "out")
        assert sorted(one.name for one in other.agents()) == ["Ann é", "Ann' é", "nul"]


def test_an_agent_that_reads_its_own_export_gets_nothing_twice(store: Perdure, tmp_path: Path) -> None:
    agent_id = filled(store)
    store.export(tmp_path / "out", agent_id)
    report = store.imports.run("jsonl", tmp_path / "out", agent="Ann' é")
    copy = store.imports.run("jsonl", tmp_path / "out")

    assert (report.new, report.conversations.already, list(report.agents.values())) == (0, 2, [agent_id])
    assert list(copy.agents) == ["Ann' é-2"] and copy.new > 0


def test_what_the_agent_has_forgotten_is_in_none_of_the_files(store: Perdure, tmp_path: Path) -> None:
    agent = store.create_agent("ann", human="Ada\nThe secret is heliotrope.")
    agent.archive("The heliotrope blooms.")
    line = agent.new_conversation(summary="About heliotrope")
    said = ("user", "heliotrope", "My heliotrope is blue", "2024-01-01T00:00:00Z")
    agent.import_messages([said], conversation=line.id)
    agent.forget("heliotrope")
    store.export(tmp_path / "out", agent.id)
    texts = {path.name: path.read_text("utf-8") for path in (tmp_path / "out").rglob("*") if path.is_file()}

    assert [name for name, text in texts.items() if "heliotrope" in (name + text).lower()] == []
    assert "Ada" in texts["memory.md"]


@pytest.mark.slow
def test_thousands_of_messages_come_back_with_the_same_hash(store: Perdure, tmp_path: Path) -> None:
    """In forty conversations, with passages beside them; also when they go round twice."""
    agent = store.create_agent("ann")
    for number in range(40):
        line = agent.new_conversation(summary=f"Talk {number} 🙂")
        each = range(COUNT // 40)
        talk = [("user", None, f"{number} {n} of quinces \ud83d", f"2024-01-01T00:{n % 60:02}:00Z") for n in each]
        agent.import_messages(talk, conversation=line.id)
        agent.archive(f"Passage {number} of the sea", tags=[f"t{number}"])
    (first,) = store.export(tmp_path / "one", agent.id)
    with open_sync(tmp_path / "b.db") as other:
        other.imports.run("jsonl", tmp_path / "one")
        (second,) = other.export(tmp_path / "two", other.agents()[0].id)
    with open_sync(tmp_path / "c.db") as last:
        last.imports.run("jsonl", tmp_path / "two")
        (third,) = last.export(tmp_path / "three", last.agents()[0].id)

    assert (first.messages, first.passages) == (COUNT, 40)
    assert first.content_hash == second.content_hash == third.content_hash
