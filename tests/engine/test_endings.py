"""Runs that end in unusual ways leave a log that the next message can be answered on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import pytest

from perdure import AsyncPerdure, ModelNotFound, RunFailed, StoreFull, tool
from perdure.core.errors import IllegalLog
from perdure.core.events import RunEnded, StoredEvent, ToolStarted
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.engine.records import rows
from perdure.engine.run import accept, request
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel, calls, says
from perdure.testing.inline_store import FaultPoint

P = ParamSpec("P")
T = TypeVar("T")

MODEL = "test/scripted"


@tool
async def wait(seconds: float) -> str:
    """Wait.

    Args:
        seconds: how long.
    """
    await asyncio.sleep(seconds)
    return "waited"


@tool
async def gives_up() -> str:
    """End its own task."""
    raise asyncio.CancelledError


class Queue(InlineStore):
    """A store that, as the real ones, carries writes out one after the other, whether or not their callers still wait;
    each takes `delay_s`."""

    delay_s = 0.0
    turn: asyncio.Lock | None = None

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.turn = self.turn or asyncio.Lock()

        async def carried_out(turn: asyncio.Lock) -> T:
            async with turn:
                await asyncio.sleep(self.delay_s)
                return await super(Queue, self).write(unit, *args, **kwargs)

        return await asyncio.shield(asyncio.ensure_future(carried_out(self.turn)))


async def test_a_run_cancelled_while_a_result_is_being_stored_has_one_result_for_its_call() -> None:
    """The transaction of the result can't be called back; it must not be given a second one."""
    store = Queue()
    model = ScriptedModel(calls("wait", seconds=0.05), says("done"))
    async with await AsyncPerdure.open(store=store, models={MODEL: model}, tools=[wait]) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        accepted = await agent.submit("go")
        async for sent in agent.follow(accepted.run.id):
            if isinstance(sent, StoredEvent) and isinstance(sent.event, ToolStarted):
                # The tool ends while the request to cancel is written; its result stands behind that in the queue.
                store.delay_s = 0.1
                await agent.cancel(accepted.run.id)
                store.delay_s = 0.0
        messages = await agent.messages()
        answer = await agent.send("and now?")

    assert Counter(result.call_id for message in messages for result in message.results) == Counter(
        call.call_id for message in messages for call in message.calls
    )
    assert answer.text == "done"


@pytest.mark.parametrize("broken", ["claim", "loop"])
async def test_after_a_defect_the_next_message_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """A run that this code can't go on with is ended; it does not stand before every later one."""

    def defect(*arguments: object, **named: object) -> object:
        raise IllegalLog("planted")

    caplog.set_level(logging.CRITICAL)
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: ScriptedModel()}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        with monkeypatch.context() as patch:
            if broken == "claim":
                for module in (accept, request):
                    patch.setattr(module, "make_request", defect)
            else:
                patch.setattr(rows.CallIds, "apply", defect)
            with pytest.raises(RunFailed, match="planted"):
                await agent.send("first")

        assert (await agent.send("second")).text == "OK."


async def test_a_tool_that_gives_its_own_task_up_is_an_error_for_the_model() -> None:
    """Nobody cancelled the run, so it goes on."""
    model = ScriptedModel(calls("gives_up"), says("sorry"))
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, tools=[gives_up]) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        async with asyncio.timeout(50):
            reply = await agent.send("go")

    assert reply.text == "sorry"
    assert [result.status for message in reply.messages for result in message.results] == ["error"]


class SelfCancelling:
    """A model whose adapter lets a cancellation of its own escape."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        yield ModelDelta("text", "he")
        raise asyncio.CancelledError


async def test_a_model_that_gives_its_own_task_up_fails_the_run() -> None:
    """The message is kept and the agent can be used."""
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: SelfCancelling()}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        async with asyncio.timeout(50):
            with pytest.raises(RunFailed):
                await agent.send("go")

        assert [message.text for message in await agent.messages()] == ["go"]


class Flaky(InlineStore):
    """A store that refuses the next `failures` writes."""

    def __init__(self) -> None:
        super().__init__(fault=self._strike)
        self.failures = 0

    async def _strike(self, point: FaultPoint) -> None:
        if point == "commit" and self.failures:
            self.failures -= 1
            raise StoreFull("planted")


class FillsTheDisk(ScriptedModel):
    """A model during whose answer the disk fills up, for a while."""

    def __init__(self, store: Flaky, *, failures: int) -> None:
        super().__init__()
        self._store, self._failures = store, failures

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self._store.failures, self._failures = self._failures, 0
        async for piece in super().respond(request):
            yield piece


async def test_a_store_that_fails_for_a_moment_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Also when taking the run up again fails."""
    caplog.set_level(logging.CRITICAL)
    store = Flaky()
    async with await AsyncPerdure.open(store=store, models={MODEL: FillsTheDisk(store, failures=3)}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)

        assert (await agent.send("hello")).text == "OK."


async def test_a_message_to_an_agent_whose_model_is_elsewhere_is_refused(tmp_path: Path) -> None:
    """It would only be failed here; nothing of it is kept."""
    path = tmp_path / "agents.db"
    async with await AsyncPerdure.open(path, models={MODEL: ScriptedModel()}) as perdure:
        await perdure.create_agent("a", model=MODEL)

    async with await AsyncPerdure.open(path) as elsewhere:
        agent = await elsewhere.agent("a")
        with pytest.raises(ModelNotFound, match=MODEL):
            await agent.send("hello")

        assert not await agent.messages()


async def test_a_run_of_another_program_is_left_to_it(tmp_path: Path) -> None:
    """Neither recovery nor a later message takes over what can't be driven here."""
    path = tmp_path / "agents.db"
    slow = ScriptedModel(otherwise=calls("wait", seconds=60))
    async with await AsyncPerdure.open(path, models={MODEL: slow}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        accepted = await agent.submit("hello")

    async with await AsyncPerdure.open(path) as elsewhere:
        await elsewhere._app.runner.recover()
        await asyncio.sleep(0.05)
        run = await (await elsewhere.agent("a")).run(accepted.run.id)
        assert not run.ended

    async with await AsyncPerdure.open(path, models={MODEL: ScriptedModel()}) as again:
        events = [sent async for sent in (await again.agent("a")).follow(accepted.run.id)]
        end = events[-1]
        assert isinstance(end, StoredEvent)
        assert isinstance(end.event, RunEnded)
        assert end.event.stop_reason == "end_turn"
