"""`perdure history`, and the last turns that a chat shows when it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure import Perdure, RunFailed
from perdure.core.errors import ModelRequestRefused
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says
from tests.support.library import MODEL
from tests.support.programs import open_chat, run_inside


def talk(home: Path) -> None:
    """A store with an agent that remembered something, then began a second conversation."""
    model = ScriptedModel(calls("memory_insert", label="human", new_string="Likes tea."), says("Noted."))
    settings = Settings(embedding="none")
    with Perdure(home / "perdure.db", settings=settings, models={MODEL: model}) as store:
        agent = store.create_agent("ada", model=MODEL)
        agent.send("I like \x1b[31mtea")
        agent.send("Hello there.", conversation=agent.new_conversation().id)


def test_a_transcript_holds_texts_calls_on_a_line_and_edits_as_diffs(tmp_path: Path) -> None:
    """Oldest first, with a line where another conversation begins, and nothing that moves the cursor."""
    talk(tmp_path)
    lines = [line.strip() for line in run_inside(tmp_path, "history", "ada").stdout.splitlines()]
    places = [
        lines.index(text)
        for text in ("── conversation 0 ──", "I like ␛[31mtea", "human  version 1", "+ Likes tea.", "Noted.", "OK.")
    ]

    assert places == sorted(places)
    assert [line for line in lines if line.startswith("⚙ memory_insert(") and "→" in line]
    assert lines.count("── conversation 1 ──") == 1


def test_a_transcript_begins_at_a_date_and_has_a_limit(tmp_path: Path) -> None:
    """The newest messages are kept; a conversation has its own; programs get JSON."""
    talk(tmp_path)

    def texts(*arguments: str) -> list[str]:
        shape = json.loads(run_inside(tmp_path, "history", "ada", "--json", *arguments).stdout)
        return [message["text"] for message in shape["messages"] if message["role"] == "user"]

    assert texts() == ["I like \x1b[31mtea", "Hello there."]
    assert texts("--limit", "2") == texts("--conversation", "1") == ["Hello there."]
    assert texts("--since", "2020-01-01") == texts()
    assert texts("--since", "2999-01-01") == []
    assert run_inside(tmp_path, "history", "ada", "--since", "whenever").returncode == 1


def test_a_transcript_says_why_a_message_got_no_answer(tmp_path: Path) -> None:
    model = ScriptedModel(ModelRequestRefused("the provider is down"))
    settings = Settings(embedding="none")
    opened = Perdure(tmp_path / "perdure.db", settings=settings, models={MODEL: model})
    with opened as store, pytest.raises(RunFailed):
        store.create_agent("ada", model=MODEL).send("hello")

    (message,) = json.loads(run_inside(tmp_path, "history", "ada", "--json").stdout)["messages"]
    assert message["failure"]["message"] == "the provider is down"
    assert "no answer: the provider is down" in run_inside(tmp_path, "history", "ada").stdout


def test_a_transcript_of_nobody_makes_no_store(tmp_path: Path) -> None:
    """It says that there is no agent."""
    done = run_inside(tmp_path, "history")

    assert done.returncode == 1 and "there is no agent yet" in done.stderr
    assert not (tmp_path / "perdure.db").exists()


async def test_a_chat_that_goes_on_shows_the_last_three_turns() -> None:
    """Of the conversation that a person switches to."""
    async with open_chat() as chat:
        await chat.type_lines("one", "two", "three", "four", "/new")
        chat.out.truncate(0)
        await chat.type_lines("/switch 0")
    shown = [line.strip() for line in chat.out.getvalue().splitlines()]

    assert [line for line in shown if line in ("one", "two", "three", "four")] == ["two", "three", "four"]
