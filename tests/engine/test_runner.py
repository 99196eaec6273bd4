"""The runner: whoever waits hears of what went wrong, and the run goes on when it can."""

from __future__ import annotations

import asyncio
import logging

import pytest

from perdure import AsyncPerdure, PerdureError
from perdure.core.events import MessageAdded, StoredEvent
from perdure.core.runs import RunKey
from perdure.domain.blocks.units import NewBlock
from perdure.engine.log.run_log import Progress
from perdure.engine.ports import Ports
from perdure.engine.run.accept import Accepted, RequestDefect
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, calls, says

MODEL = "test/scripted"


async def open_library(model: ScriptedModel) -> AsyncPerdure:
    return await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, clock=FakeClock(), ids=SequentialIds())


async def test_a_defect_in_driving_reaches_the_one_who_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for an answer that no task is working on."""

    async def broken(*arguments: object, **named: object) -> Progress | None:
        raise ZeroDivisionError("planted")

    def not_begun(*arguments: object, **named: object) -> Accepted:
        raise RequestDefect from ZeroDivisionError("not begun")

    caplog.set_level(logging.CRITICAL)
    async with await open_library(ScriptedModel()) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        with monkeypatch.context() as patch:
            patch.setattr("perdure.engine.run.accept._begin", not_begun)
            patch.setattr("perdure.engine.run.runner.claim_run", broken)

            with pytest.raises(PerdureError, match="planted"):
                await agent.send("hello")

        run = (await agent.messages())[0].run_id
        assert run is not None  # the message is kept


async def test_runs_are_taken_over_while_a_long_reset_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for them goes on meanwhile, and begins nothing twice."""
    begun, may_end = 0, asyncio.Event()

    async def long(ports: Ports) -> None:
        nonlocal begun
        begun += 1
        await may_end.wait()

    monkeypatch.setattr("perdure.engine.run.runner.finish_removals", long)
    async with await open_library(ScriptedModel()) as perdure:
        for _ in range(2):
            async with asyncio.timeout(5):
                await perdure.app.runner.recover()
            await asyncio.sleep(0)
        assert begun == 1
        may_end.set()


async def test_events_are_numbered_and_messages_come_with_them() -> None:
    """A reader needs nothing else to show what happens."""
    async with await open_library(ScriptedModel(says("hi"))) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)

        events = [sent async for sent in agent.stream("hello") if isinstance(sent, StoredEvent)]

        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        added = [event.event.message for event in events if isinstance(event.event, MessageAdded)]
        assert [message.text for message in added if message is not None] == ["hello", "hi"]


async def test_a_shared_block_renamed_from_outside_is_told_with_both_labels() -> None:
    """The model must not go on editing a label that is gone."""
    model = ScriptedModel(says("one"), says("two"), says("three"))
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, blocks=[NewBlock(label="plan", value="x")])
        await agent.send("1")
        await agent.blocks.change("plan", label="goal")
        await agent.send("2")
        await agent.blocks.detach("goal")
        await agent.send("3")

    deltas = [message.text for message in model.requests[-1].messages if message.kind == "memory_delta"]
    assert '"label": "goal"' in deltas[0]
    assert '"renamed_from": "plan"' in deltas[0]
    assert '"label": "goal", "op": "detached"' in deltas[1]


async def test_a_memory_edit_is_in_the_run_log_that_the_loop_goes_on_with() -> None:
    """The log that a transaction gives back is the one in the store, memory tools included."""
    model = ScriptedModel(calls("memory_insert", label="human", new_string="Ada"), says("noted"))
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        reply = await agent.send("I am Ada")

        def results(tx: Tx) -> list[str]:
            run = tx.runs.get(reply.run_id)
            messages = tx.messages.list_by_run(tx.runs.get_by_key(RunKey(agent.id, run.key.seq)))
            return [result.text for message in messages for result in message.results]

        assert await perdure._app.store.read(results) == ["Ada"]
