"""What an interface is shown of an answer, and the interfaces that ship."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure
from perdure.features.interfaces.interface import AgentInterface
from perdure.features.interfaces.shipped import CallbackInterface, SSEInterface, TerminalInterface
from perdure.testing import ScriptedModel, calls, fails, says, thinks
from tests.support.servers import MODEL, open_library


class Recorder(AgentInterface):
    """Keeps the names and texts of what it is shown. `allows`: what it says to calls that wait for a person."""

    def __init__(self, allows: bool | None = None) -> None:
        self.seen: list[tuple[str, str]] = []
        self._allows = allows

    def user_message(self, text: str, message: Any) -> None:
        self.seen.append(("user_message", text))

    async def internal_monologue(self, text: str, message: Any) -> None:
        self.seen.append(("internal_monologue", text))

    def assistant_message(self, text: str, message: Any) -> None:
        self.seen.append(("assistant_message", text))

    async def tool_call(self, call: Any, message: Any) -> None:
        self.seen.append(("tool_call", call.name))

    def function_message(self, text: str, message: Any) -> None:
        self.seen.append(("function_message", text))

    def approval(self, call: Any) -> bool | None:
        self.seen.append(("approval", call.name))
        return self._allows

    def run_ended(self, end: Any) -> None:
        self.seen.append(("run_ended", end.stop_reason))

    def close(self) -> None:
        self.seen.append(("close", ""))


def add(a: int) -> str:
    """Add one.

    Args:
        a: a number.
    """
    return f"{a + 1}"


@pytest.fixture
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """An agent with the tool `add`, whose model says the parameter's script."""
    with Perdure(tmp_path / "a.db", models={MODEL: ScriptedModel(*request.param)}, tools=[add]) as perdure:
        yield perdure.create_agent("ann", model=MODEL, tools=["add", "send_message"])


SPEAKS = (thinks("Hm.", calls("add", a=1)), calls("send_message", message="Two."))


@pytest.mark.parametrize("agent", [SPEAKS], indirect=True)
def test_each_thing_is_shown_once_and_in_order(agent: Any) -> None:
    """With MemGPT's alias for results; what is said by `send_message` is an answer, and its result is not shown."""
    recorder = Recorder()
    end = agent.talk("What is one and one?", recorder)

    assert end.stop_reason == "end_turn"
    assert recorder.seen == [
        ("user_message", "What is one and one?"),
        ("internal_monologue", "Hm."),
        ("tool_call", "add"),
        ("function_message", "2"),
        ("assistant_message", "Two."),
        ("run_ended", "end_turn"),
        ("close", ""),
    ]


@pytest.mark.parametrize("agent", [(calls("add", a=1), says("Done."))], indirect=True)
@pytest.mark.parametrize(("allows", "results"), [(True, ["2"]), (False, None), (None, [])])
def test_it_decides_calls_that_wait_for_a_person(agent: Any, allows: bool | None, results: Any) -> None:
    agent.require_approval("add")
    recorder = Recorder(allows)
    end = agent.talk("Add.", recorder)

    assert end.stop_reason == ("requires_approval" if allows is None else "end_turn")
    assert [name for name, _ in recorder.seen].count("approval") == 1
    shown = [text for name, text in recorder.seen if name == "function_message"]
    assert shown == results if results is not None else "denied" in shown[0].lower()
    assert len(agent.pending()) == (1 if allows is None else 0)
    assert recorder.seen[-1] == ("close", "")


@pytest.mark.parametrize("agent", [(calls("add", a=1),)], indirect=True)
def test_a_terminal_that_is_closed_at_a_question_leaves_the_call_waiting(agent: Any, monkeypatch: Any) -> None:
    """As by Ctrl-D."""

    def end(prompt: str) -> str:
        """Raise what `input` raises at the end of a terminal."""
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    agent.require_approval("add")

    assert agent.talk("Add.", TerminalInterface()).stop_reason == "requires_approval"
    assert len(agent.pending()) == 1


@pytest.mark.parametrize("agent", [(thinks("Hm.", calls("add", a=1)), says("Two.\x1b[2J"))], indirect=True)
def test_a_terminal_shows_no_control_characters(agent: Any) -> None:
    out, detailed = io.StringIO(), io.StringIO()
    agent.talk("Add.", TerminalInterface(out=out))
    agent.talk("Again.", TerminalInterface(out=detailed, details=True))

    assert out.getvalue() == "Two.␛[2J\n"
    assert detailed.getvalue() == "OK.\n"


@pytest.mark.parametrize("agent", [(fails(), fails())], indirect=True)
def test_a_failure_is_shown_and_not_raised(agent: Any) -> None:
    out = io.StringIO()
    end = agent.talk("Hello.", TerminalInterface(out=out))

    assert end.failure is not None
    assert out.getvalue() == "The run failed: the provider is down\n"


@pytest.mark.parametrize("agent", [SPEAKS], indirect=True)
def test_callbacks_get_what_the_methods_get(agent: Any) -> None:
    said: list[str] = []

    async def think(text: str, message: Any) -> None:
        said.append(f"({text})")

    agent.talk(
        "Hi.", CallbackInterface(assistant_message=lambda text, message: said.append(text), internal_monologue=think)
    )

    assert said == ["(Hm.)", "Two."]
    with pytest.raises(TypeError, match=r"no method 'assistant'.*assistant_message"):
        CallbackInterface(assistant=print)


async def test_a_stream_has_an_event_for_each_thing(tmp_path: Path) -> None:
    """And ends, also when the talk fails before it begins."""
    async with open_library(tmp_path, ScriptedModel(*SPEAKS), [add]) as perdure:
        agent = await perdure.create_agent("ann", model=MODEL, tools=["add", "send_message"])
        stream, broken = SSEInterface(), SSEInterface()
        talk = asyncio.create_task(agent.talk("Hi \ud800🐈", stream))
        chunks = [chunk async for chunk in stream.chunks()]
        await talk
        with pytest.raises(Exception, match="empty"):
            await agent.talk(" ", broken)

        assert [one async for one in broken.chunks()] == []
        events = [chunk.decode().split("\n") for chunk in chunks]
        names = [lines[0].removeprefix("event: ") for lines in events]
        assert [name for name in names if name != "delta"] == [
            "internal_monologue",
            "tool_call",
            "tool_result",
            "assistant_message",
            "run_ended",
        ]
        assert all(json.loads(lines[1].removeprefix("data: ")) and lines[2:] == ["", ""] for lines in events)
