"""A request that names the only tools that may be called for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, Perdure
from perdure.core.errors import InvalidInput
from perdure.core.messages import ToolCall
from perdure.core.models import ModelReply
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says

RAN: list[str] = []
TOOLS = ("look", "burn", "memory_insert")


def look(place: str) -> str:
    """Look at a place."""
    RAN.append(f"look {place}")
    return f"{place} is empty"


def burn(place: str) -> str:
    """Burn a place down."""
    RAN.append(f"burn {place}")
    return "ashes"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for a store; nothing ran yet."""
    RAN.clear()
    return tmp_path


@contextmanager
def talking(home: Path, *script: ModelReply, **settings: Any) -> Iterator[tuple[Agent, ScriptedModel]]:
    """An agent with two tools and its memory, and its model."""
    model = ScriptedModel(*script)
    chosen = Settings(home=str(home), model="test/scripted")
    with Perdure(models={"test/scripted": model}, tools=[look, burn], settings=chosen) as store:
        yield store.create_agent("ann", tools=TOOLS, human="Likes tea.", settings=settings), model


def test_another_tool_is_refused_and_not_run(home: Path) -> None:
    """A function or a memory tool; the model reads which ones may be called. The next request has all of them again."""
    burning, edit = calls("burn", place="barn"), calls("memory_insert", label="human", new_string="x")
    script = (burning, edit, calls("look", place="barn"), says("Done."), burning, says("Done."))
    with talking(home, *script) as (agent, model):
        reply = agent.send("Look around.", tools=["look"])
        results = [result for message in reply.messages for result in message.results]

        assert RAN == ["look barn"] and agent.blocks.get("human").value == "Likes tea."
        assert [result.status for result in results] == ["error", "error", "success"]
        assert results[0].text == "[ToolNotAllowed] burn may not be called for this request. Tools that may: look."
        agent.send("Burn it.")
        assert RAN == ["look barn", "burn barn"]
        assert len({str(request.tools) for request in model.requests}) == 1


def test_calls_side_by_side_are_judged_one_by_one(home: Path) -> None:
    """In one answer."""
    others = [ToolCall("", name, json.dumps({"place": place})) for name, place in (("burn", "b"), ("look", "c"))]
    with talking(home, calls("look", *others, place="a"), says("Done.")) as (agent, _):
        agent.send("Look around.", tools=("look",))

    assert sorted(RAN) == ["look a", "look c"]


def test_a_request_without_tools_offers_none(home: Path) -> None:
    """By the choice of tools, so that the prefix stays as it is."""
    with talking(home) as (agent, model):
        agent.send("Hello.")
        agent.send("Only talk.", tools=[])

    assert [request.options.tool_choice for request in model.requests] == ["auto", "none"]
    assert model.requests[0].tools == model.requests[1].tools


def test_nobody_is_asked_about_a_call_that_is_refused(home: Path) -> None:
    """And what goes on after an approval may call no more tools than before."""
    rules = [{"type": "requires_approval", "tool_name": name} for name in ("look", "burn")]
    burning = ToolCall("", "burn", '{"place": "b"}')
    script = (calls("look", burning, place="a"), calls("burn", place="c"), says("Done."))
    with talking(home, *script, tool_rules=rules) as (agent, _):
        reply = agent.send("Look around.", tools=["look"])
        assert [call.name for call in reply.pending] == ["look"] and RAN == []

        done = agent.approve(reply.pending[0].call_id)
        assert RAN == ["look a"] and done is not None and done.text == "Done." and not done.pending


@pytest.mark.parametrize("tools", ["look", [1]])
def test_tools_are_a_list_of_names(home: Path, tools: Any) -> None:
    """A text would be letters."""
    with talking(home) as (agent, _), pytest.raises(InvalidInput, match="tools is"):
        agent.send("Hello.", tools=tools)
