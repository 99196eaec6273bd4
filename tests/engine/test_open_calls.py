"""Runs that end between two calls of one answer: no call is left open, and none is made after a request to stop."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from perdure import AsyncPerdure, RunFailed, hook
from perdure.context.sections.assemble import check_legal
from perdure.core.events import RunCancelRequested
from perdure.core.messages import ToolCall, ToolResult
from perdure.core.models import ModelReply
from perdure.core.specs import ToolOutcome
from perdure.domain.tools.memory_tools import MEMORY_TOOLS
from perdure.engine.run import tool_calls
from perdure.library.agent import AsyncAgent
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel
from perdure.testing.clock import START

P = ParamSpec("P")
T = TypeVar("T")

MODEL = "test/scripted"
TOOL = "core_memory_append"


def two_calls() -> ModelReply:
    words = {"first": "sea", "second": "land"}
    return ModelReply(
        parts=tuple(
            ToolCall(call_id, TOOL, json.dumps({"label": "human", "content": word})) for call_id, word in words.items()
        )
    )


async def results_of(perdure: AsyncPerdure, agent: AsyncAgent) -> dict[str, ToolResult]:
    """The result of each call, of a log that is legal."""
    messages = await perdure.app.store.read(lambda tx: tx.messages.list(agent.id, kinds=None))
    check_legal(messages)
    return {result.call_id: result for message in messages for result in message.results}


@pytest.mark.parametrize("calls_before", [0, 1])
async def test_a_defect_leaves_no_call_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, calls_before: int
) -> None:
    """Each call that was not made is answered as the run ends, so the next message can be answered on the log."""
    caplog.set_level(logging.CRITICAL)
    store, made = InlineStore(), 0

    def fail(*arguments: Any, **named: Any) -> ToolOutcome:
        nonlocal made
        if made == calls_before:
            raise RuntimeError("planted")
        made += 1
        return MEMORY_TOOLS[TOOL](*arguments, **named)

    async with await AsyncPerdure.open(store=store, models={MODEL: ScriptedModel(two_calls())}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, tools=[TOOL])
        with monkeypatch.context() as patch:
            patch.setattr(tool_calls, "MEMORY_TOOLS", {TOOL: fail})
            with pytest.raises(RunFailed, match="planted"):
                await agent.send("go")
        results = await results_of(perdure, agent)

        assert [results[call_id].status for call_id in ("first", "second")].count("error") == 2 - calls_before
        assert (await agent.send("next")).text == "OK."


class StopsBeforeSecond(InlineStore):
    """A store in which another program asks all runs to stop right before the second memory edit."""

    edits = 0

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if unit.__name__ == "store_edit":
            self.edits += 1
            if self.edits == 2:
                await super().write(self._stop)
        return await super().write(unit, *args, **kwargs)

    def _stop(self, tx: Tx) -> None:
        for run in tx.runs.list_oldest():
            tx.runs.request_cancel(run.key)
            tx.events.add(run.key, [RunCancelRequested(run.id)], at=START)


async def test_a_request_to_stop_between_two_calls_stops_the_second() -> None:
    """Also when it is committed right before the transaction of the second call."""
    store = StopsBeforeSecond()
    async with await AsyncPerdure.open(store=store, models={MODEL: ScriptedModel(two_calls())}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, tools=[TOOL])
        reply = await agent.send("go")
        results = await results_of(perdure, agent)
        block = await agent.blocks.get("human")

        assert (reply.stop_reason, store.edits) == ("cancelled", 2)
        assert [results[call_id].status for call_id in ("first", "second")] == ["success", "error"]
        assert ("sea" in block.value, "land" in block.value) == (True, False)


async def test_hooks_hear_of_no_result_of_a_call_that_was_stopped() -> None:
    """The newest result in the log is then another call's."""
    heard: list[str] = []

    @hook("after_tool", name="watcher")
    def watch(payload: Any) -> None:
        heard.append(payload.call_id)

    models = {MODEL: ScriptedModel(two_calls())}
    async with await AsyncPerdure.open(store=StopsBeforeSecond(), models=models, hooks=[watch]) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, tools=[TOOL])
        reply = await agent.send("go")

    assert (reply.stop_reason, heard) == ("cancelled", ["first"])
