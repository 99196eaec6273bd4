"""Answers of models that break off, that are read slowly, or that refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core.models import ModelDelta
from perdure.features.openai_front.proxy import HELD_PIECES, AnswerRelay
from perdure.testing import ScriptedModel, calls, says
from perdure.testing.http_model import CutOff, RawBody, Refusal
from tests.features.openai_front.support import PATH, program
from tests.features.openai_front.test_proxy import proxied
from tests.server.routed import MODEL


async def fill(passing: AnswerRelay, count: int) -> None:
    for number in range(count):
        await passing.put(b"%d " % number)
    passing.end()


async def test_a_slow_program_has_little_held_for_it() -> None:
    """The provider waits with the rest, until the program reads on; nothing is lost."""
    passing = AnswerRelay("text/event-stream")
    filling = asyncio.create_task(fill(passing, 1_000))
    await asyncio.sleep(0.05)
    held, waits = passing._pieces.statistics().current_buffer_used, not filling.done()
    text = b"".join([piece async for piece in passing.pieces()])

    assert (held, waits) == (HELD_PIECES, True)
    assert text.split() == [b"%d" % number for number in range(1_000)]


@pytest.mark.parametrize("leaves", [True, False])
async def test_nobody_waits_for_a_program_that_has_left(monkeypatch: pytest.MonkeyPatch, leaves: bool) -> None:
    """Nor for one that reads nothing for a minute: the rest is read from the provider, and not held."""
    monkeypatch.setattr("perdure.features.openai_front.proxy.STALLED_S", 30 if leaves else 0.05)
    passing = AnswerRelay("text/event-stream")
    filling = asyncio.create_task(fill(passing, 1_000))
    pieces = passing.pieces()
    await anext(pieces)
    if leaves:
        await pieces.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(10):
        await filling

    assert passing._pieces.statistics().current_buffer_used <= HELD_PIECES


async def test_a_program_that_paused_gets_what_is_held_and_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream that looks whole."""
    monkeypatch.setattr("perdure.features.openai_front.proxy.STALLED_S", 0.05)
    passing = AnswerRelay("text/event-stream")
    await fill(passing, 1_000)
    pieces = [piece async for piece in passing.pieces()]

    assert pieces[:-1] == [b"%d " % number for number in range(HELD_PIECES)]
    assert json.loads(pieces[-1].strip().removeprefix(b"data: "))["error"]["code"] == "stalled"


@pytest.mark.parametrize("clean", [True, False])
async def test_a_half_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch, clean: bool) -> None:
    """The whole one of the next try is."""
    half = CutOff(says("half of it all is here"), 3, clean=clean)
    async with proxied(monkeypatch, half, says("All of it.")) as proxy:
        for _ in range(2):
            await proxy.ask("U1", stream=True)

        assert await proxy.conversations() == [["U1", "All of it."]]


@pytest.mark.parametrize(
    "answer", [CutOff(says("half of it all is here"), 4), RawBody(b'{"choices": [', "application/json")]
)
async def test_a_whole_answer_that_breaks_off_is_an_error(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Not the half of it; the next try is answered and kept."""
    async with proxied(monkeypatch, answer, says("All of it.")) as proxy:
        broken = await proxy.ask("U1")
        await proxy.ask("U1")

        assert broken.status_code == 500 and broken.json()["error"]["code"] == "stream_incomplete"
        assert await proxy.conversations() == [["U1", "All of it."]]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_kept_with_its_words(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    """In place of an empty answer."""
    async with proxied(monkeypatch, Refusal("I must not.")) as proxy:
        await proxy.ask("U1", stream=stream)

        assert await proxy.conversations() == [["U1", "I must not."]]


async def test_a_stream_that_breaks_by_any_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by one that no model should raise."""

    async def broken(self: Any, request: Any) -> AsyncIterator[Any]:
        yield ModelDelta("text", "half")
        raise ValueError("a bug")

    monkeypatch.setattr(ScriptedModel, "respond", broken)
    async with proxied(monkeypatch) as proxy:
        answer = await proxy.ask("U1", model=f"memory/{MODEL}", stream=True)
        last = json.loads(answer.text.strip().splitlines()[-1].removeprefix("data: "))

        assert last["error"]["code"] == "internal_error" and await proxy.conversations() == [["U1"]]


async def test_an_agent_without_an_answer_answers_with_an_error() -> None:
    """A model that calls no tool, though it has to, gives no empty answer."""
    tools = [{"type": "function", "function": {"name": "roll", "parameters": {"type": "object"}}}]
    async with program(*[says("No.")] * 4) as asking:
        required: dict[str, Any] = {"tools": tools, "tool_choice": "required"}
        answer = await asking.server.http.post(PATH, json=asking.body("Roll a die.", **required))
        stream = await asking.server.http.post(PATH, json=asking.body("Once more.", **required, stream=True))
        events = [one.removeprefix("data: ") for one in stream.text.splitlines() if one.startswith("data: {")]

        assert answer.status_code == 500
        assert "called no tool although it had to" in answer.json()["error"]["message"]
        assert json.loads(events[-1])["error"]["code"] == answer.json()["error"]["code"] == "llm_error"


async def test_a_budget_that_is_used_up_answers_with_429(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of money, within a run."""
    prices = f'[[model]]\nmatch = ["{MODEL}"]\nprice = {{ input = 10_000, output = 10_000 }}\n'
    (tmp_path / "catalog.toml").write_text(prices)
    monkeypatch.setenv("PERDURE_CATALOG", str(tmp_path / "catalog.toml"))
    limited = {"limits": {"cost_per_run": 0.1}}
    async with program(calls("conversation_search", query="x"), says("Found."), settings=limited) as asking:
        answer = await asking.server.http.post(PATH, json=asking.body("Look for it."))

        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "max_cost_exceeded"), answer.text
