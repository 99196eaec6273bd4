"""`MessageHistory` with pydantic-ai's own agents."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is installed by `make setup`")

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.models.test import TestModel

from perdure import Perdure
from perdure.adapters.pydantic_ai import MessageHistory


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    """With calls of tools and a file, equal to what the agent itself has."""
    agent = Agent(TestModel())

    @agent.tool_plain
    def add(a: int) -> int:
        return a + 1

    file = BinaryContent(b"%PDF\xff", media_type="application/pdf")
    sayings: list[str | list[str | BinaryContent]] = ["The key is in the blue drawer.", ["Look", file]]
    for said in sayings:
        with MessageHistory("s1", tmp_path / "a.db") as history:
            result = asyncio.run(agent.run(said, message_history=history.load()))
            history.append(result.new_messages())

    with MessageHistory("s1", tmp_path / "a.db") as history:
        assert history.load() == result.all_messages()
        assert len(history.load()) == 6
    with Perdure(tmp_path / "a.db") as perdure:
        assert perdure.archives.get("pydantic-ai").search("where is the key")[0].passage.text.startswith("The key")


def test_sessions_are_apart_and_cleared_alone(tmp_path: Path) -> None:
    result = asyncio.run(Agent(TestModel()).run("Hello"))
    with MessageHistory("s1", tmp_path / "a.db") as one, MessageHistory("s2", tmp_path / "a.db") as other:
        one.append(result.all_messages())
        other.append(result.all_messages())
        one.clear()

        assert one.load() == []
        assert other.load() == result.all_messages()
