"""Summaries that are prepared in the background, before the window is full."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, InvalidInput, RunFailed, StoredEvent, Verdict, hook
from perdure.core.events import ViewCompacted
from perdure.core.hooks import BeforeCompaction
from perdure.core.ids import StepId
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.nodes import SummaryNode
from perdure.core.runs import RunKey
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, says

MODEL = "test/scripted"
FILLER = "word " * 150
SUMMARY = "They said one word after the other."


async def open_library(model: Any, clock: FakeClock | None = None, **options: Any) -> AsyncPerdure:
    models = {MODEL: model, **options.pop("models", {})}
    return await AsyncPerdure.open(
        store=InlineStore(), models=models, clock=clock or FakeClock(), ids=SequentialIds(), **options
    )


async def create_small_agent(perdure: AsyncPerdure, **summaries: Any) -> AsyncAgent:
    settings = {"context_window_tokens": 8_000, "auto_recall": False, "summaries": {"leaf_min_fanout": 2, **summaries}}
    return await perdure.create_agent("a", model=MODEL, settings=settings)


async def settle(perdure: AsyncPerdure) -> None:
    """Wait until nothing is prepared any more."""
    while tasks := perdure.app.runner.after_runs.tasks:
        await asyncio.wait(tasks)


async def compactions_of(agent: AsyncAgent, message: str) -> list[ViewCompacted]:
    sent = [sent async for sent in agent.stream(message)]
    events = [one.event for one in sent if isinstance(one, StoredEvent)]
    return [event for event in events if isinstance(event, ViewCompacted)]


async def nodes_of(perdure: AsyncPerdure, agent: AsyncAgent) -> tuple[Sequence[SummaryNode], set[int]]:
    """All nodes of the agent, and the numbers of those in view."""

    def read(tx: Tx) -> tuple[Sequence[SummaryNode], set[int]]:
        seq = tx.conversations.get_by_seq(agent.id, 0).prefix_seq
        shown = set() if seq is None else set(tx.prefixes.get(agent.id, seq).nodes)
        return tx.nodes.list_newest(agent.id, 0), shown

    return await perdure.app.ports.store.read(read)


async def fill_until_prepared(perdure: AsyncPerdure, agent: AsyncAgent, filler: str = FILLER) -> int:
    """Send messages until a summary is prepared; return how many."""
    for number in range(60):
        await agent.send(f"message {number} {filler}")
        await settle(perdure)
        nodes, shown = await nodes_of(perdure, agent)
        if len(nodes) > len(shown):
            return number + 1
    raise AssertionError("nothing was prepared")


@pytest.mark.slow
async def test_a_full_window_takes_summaries_that_were_prepared_before() -> None:
    """No run waits for a summary: all of them were written between two runs."""
    model = ScriptedModel(summarises=says(SUMMARY))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        compacted: list[ViewCompacted] = []
        for number in range(50):
            prepared = {node.seq for node in (await nodes_of(perdure, agent))[0]}
            new = await compactions_of(agent, f"message {number} {FILLER}")
            assert {one.node_seq for one in new} <= prepared
            compacted += new
            await settle(perdure)

    assert len(compacted) > 4
    assert {one.made_by for one in compacted} == {"model"}
    assert any(one.merged for one in compacted)


async def test_nothing_is_prepared_before_the_threshold() -> None:
    model = ScriptedModel(summarises=says(SUMMARY))
    async with await open_library(model) as perdure:
        early, late = [await create_small_agent_named(perdure, name, share) for name, share in _THRESHOLDS.items()]
        sent = [await fill_until_prepared(perdure, agent, FILLER * 3) for agent in (early, late)]

    assert sent[0] < sent[1]


_THRESHOLDS = {"early": 0.6, "late": 0.95}


async def create_small_agent_named(perdure: AsyncPerdure, name: str, threshold: float) -> AsyncAgent:
    settings = {
        "context_window_tokens": 8_000,
        "auto_recall": False,
        "summaries": {"leaf_min_fanout": 2, "context_threshold": threshold, "fresh_tail_tokens": 800},
    }
    return await perdure.create_agent(name, model=MODEL, settings=settings)


async def test_the_newest_messages_are_in_no_prepared_summary() -> None:
    model = ScriptedModel(summarises=says(SUMMARY))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure, fresh_tail_messages=6, fresh_tail_tokens=2_000, context_threshold=0.5)
        sent = await fill_until_prepared(perdure, agent)
        nodes, _ = await nodes_of(perdure, agent)

    assert max(node.upto_message_seq for node in nodes) < 2 * sent - 6


async def test_without_background_a_run_waits_for_its_summary() -> None:
    model = ScriptedModel(summarises=says(SUMMARY))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure, background=False)
        while not model.summary_requests:
            before = len(model.summary_requests)
            compacted = await compactions_of(agent, FILLER)
            assert len(model.summary_requests) - before == len(compacted)
            await settle(perdure)


@pytest.mark.slow
async def test_a_summary_of_a_message_that_was_changed_since_is_not_used() -> None:
    model = ScriptedModel(summarises=says(SUMMARY))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        await fill_until_prepared(perdure, agent)
        (stale,), _ = await nodes_of(perdure, agent)
        first = (await agent.messages(limit=1, newest_first=False))[0]
        await agent.update_message(first.id, "something else")
        for _ in range(20):
            await agent.send(FILLER)
            await settle(perdure)
        _, shown = await nodes_of(perdure, agent)

    assert shown
    assert stale.seq not in shown


async def test_a_model_that_is_down_prepares_nothing_and_is_tried_again() -> None:
    """An extract stands for what it can't summarise only when the window is full."""
    model = ScriptedModel()  # it fails when it is asked for a summary
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        while not model.summary_requests:
            await agent.send(FILLER)
            await settle(perdure)
        assert (await nodes_of(perdure, agent))[0] == []
        tries = len(model.summary_requests)
        await agent.send(FILLER)
        await settle(perdure)
        assert len(model.summary_requests) > tries


class _Held:
    """A model that writes no summary before it is allowed to."""

    def __init__(self) -> None:
        self.allowed = asyncio.Event()
        self.answers = 0
        self.summaries = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose == "summary":
            self.summaries += 1
            await self.allowed.wait()
            yield says(SUMMARY)
            return
        self.answers += 1
        yield says("OK.")


@pytest.mark.parametrize("reset", [False, True])
async def test_messages_are_answered_while_a_summary_is_written(reset: bool) -> None:
    """What it stands for may have left the view by other ways; then it is thrown away."""
    model = _Held()
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        while not model.summaries:
            await agent.send(FILLER)
            await asyncio.sleep(0)
        answers = model.answers
        await agent.send("short")
        assert model.answers == answers + 1
        if reset:
            await agent.reset()
        model.allowed.set()
        await settle(perdure)
        nodes, _ = await nodes_of(perdure, agent)

    assert bool(nodes) is not reset


@pytest.mark.parametrize(("rest", "swapped"), [(600, False), (7_200, True)])
async def test_a_view_that_fits_takes_them_once_the_provider_s_cache_has_expired(rest: float, swapped: bool) -> None:
    """A new prefix costs nothing then."""
    clock = FakeClock()
    async with await open_library(ScriptedModel(summarises=says(SUMMARY)), clock) as perdure:
        agent = await create_small_agent(perdure)
        await fill_until_prepared(perdure, agent)
        clock.advance(rest)
        assert bool(await compactions_of(agent, "short")) is swapped


async def test_a_view_that_fits_takes_them_where_long_runs_would_read_it_often() -> None:
    model = ScriptedModel(summarises=says(SUMMARY))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure, context_threshold=0.8)
        await fill_until_prepared(perdure, agent)

        def lengthen(tx: Tx) -> None:
            (last,) = tx.steps.list(agent.id, limit=1)
            for index in range(1, 98):
                run = tx.runs.get_by_key(RunKey(agent.id, last.run_seq))
                tx.steps.add(
                    run, StepId(f"step-{index}"), index=index, model=MODEL, recipe=last.recipe, at=last.created_at
                )

        assert not await compactions_of(agent, "short")
        await perdure.app.store.write(lengthen)
        assert await compactions_of(agent, "short")


@pytest.mark.parametrize("refuses", [False, True])
async def test_hooks_are_called_before_prepared_summaries_are_taken(refuses: bool) -> None:
    """Only in a full window, since a hook that refuses ends a run whose request does not fit."""
    payloads: list[BeforeCompaction] = []

    @hook("before_compaction")
    def watcher(payload: BeforeCompaction) -> Verdict | None:
        payloads.append(payload)
        return Verdict(block="not now") if refuses else None

    clock = FakeClock()
    model = ScriptedModel(summarises=says(SUMMARY))
    async with await open_library(model, clock, hooks=[watcher]) as perdure:
        agent = await create_small_agent(perdure)
        await fill_until_prepared(perdure, agent)
        clock.advance(7_200)  # with a cold cache a view that fits would take them
        assert await compactions_of(agent, "short") == []
        assert payloads == []
        answered = len(model.requests)
        with pytest.raises(RunFailed, match="not now") if refuses else contextlib.nullcontext():
            while not payloads:
                await agent.send(FILLER)
                answered += 1
        _, shown = await nodes_of(perdure, agent)

    assert len(model.requests) == answered
    assert bool(shown) is not refuses


async def test_sizes_and_model_of_the_settings_hold_in_a_full_window_too() -> None:
    """A summary that a run waits for is no larger than a prepared one may be."""
    own, other = ScriptedModel(), ScriptedModel(summarises=says("They said one word after the other. " * 40))
    async with await open_library(own, models={"test/other": other}) as perdure:
        settings = {
            "context_window_tokens": 40_000,
            "auto_recall": False,
            "summaries": {"background": False, "leaf_target_tokens": 90},
            "compaction": {"model": "test/other"},
        }
        agent = await perdure.create_agent("a", model=MODEL, settings=settings)
        while not other.summary_requests:
            await agent.send(FILLER * 8)
        nodes, _ = await nodes_of(perdure, agent)

    assert own.summary_requests == []
    assert nodes[0].tokens <= 90
    assert nodes[0].model == "test/other"


@pytest.mark.uses("extractive")
@pytest.mark.parametrize(
    "summaries", [{"context_threshold": 2}, {"background": "no"}, {"leaf_tokens": 5}, {"fresh_tail_messages": 0}, 3]
)
async def test_a_wrong_setting_is_refused_by_name(summaries: Any) -> None:
    async with await open_library(ScriptedModel()) as perdure:
        with pytest.raises(InvalidInput, match="summaries"):
            await perdure.create_agent(settings={"summaries": summaries})


@pytest.mark.uses("costs")
async def test_a_prefix_that_is_new_anyway_takes_what_is_prepared() -> None:
    """Then it costs nothing; the ledger names the one reason for both."""
    model = ScriptedModel(summarises=says(SUMMARY))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        await fill_until_prepared(perdure, agent)
        await agent.update(system="You are brief.")
        compacted = await compactions_of(agent, "and now?")
        newest = (await agent.costs()).requests[-1]

    assert len(compacted) > 0
    assert [rewrite.reason for rewrite in newest.rewrites] == ["settings", "settings"]
    assert [change.what for change in newest.rewrites[0].changes] == ["system prompt"]


OLD, NEW = "xylocarp", "calabash"


class _Repeats(_Held):
    """A model whose summary has the words that it was shown, when it is allowed to answer."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose == "summary":
            shown = "\n".join((request.system, *(message.text for message in request.messages)))
            said = " and ".join(word for word in (OLD, NEW) if word in shown)
            self.summaries += 1
            await self.allowed.wait()
            yield says(f"They said {said}, one word after the other.")
            return
        yield says("OK.")


@pytest.mark.parametrize("what", ["message", "prefix"])
async def test_a_summary_of_what_changes_while_it_is_written_is_not_stored(what: str) -> None:
    """It is written anew; so is one that the agent's own model writes behind a prefix that changes."""
    model = _Repeats()
    async with await open_library(model) as perdure:
        settings: dict[str, Any] = {
            "context_window_tokens": 8_000,
            "auto_recall": False,
            "summaries": {"leaf_min_fanout": 2},
        }
        if what == "prefix":
            settings["compaction"] = {"mode": "self_compact_sliding_window"}
        system = f"Speak of {OLD if what == 'prefix' else NEW}."
        agent = await perdure.create_agent("a", model=MODEL, system=system, settings=settings)
        await agent.send(f"{OLD if what == 'message' else ''} {FILLER}")
        while not model.summaries:
            await agent.send(FILLER)
            await asyncio.sleep(0)
        if what == "message":
            first = (await agent.messages(limit=1, newest_first=False))[0]
            await agent.update_message(first.id, NEW)
        else:
            await agent.update(system=f"Speak of {NEW}.")
        model.allowed.set()
        await settle(perdure)
        await agent.send(FILLER)
        await settle(perdure)
        nodes, _ = await nodes_of(perdure, agent)

    assert model.summaries >= 2
    assert nodes and all(OLD not in node.text for node in nodes)
