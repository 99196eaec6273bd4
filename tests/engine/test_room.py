"""Making room: what leaves the view when a request would not fit, and what a run does when nothing can."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, RunFailed, StoredEvent
from perdure.core.blocks import Author
from perdure.core.errors import ModelOverflow
from perdure.core.events import PrefixRewritten, RowsCut, ViewCompacted
from perdure.core.ids import RunId
from perdure.core.incoming.principals import day_of
from perdure.core.messages import Text
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, calls, says
from perdure.testing.clock import START
from tests.support.real_tokens import tokens_of_request

MODEL = "test/scripted"
WINDOW = 8_000
FILLER = "word " * 300
COMPACTIONS = 50 if os.environ.get("PERDURE_FAULTS") == "full" else 12
"""Enough for several merges of summary nodes."""


async def open_library(model: Any, **options: Any) -> AsyncPerdure:
    return await AsyncPerdure.open(
        store=options.pop("store", None) or InlineStore(),
        models={MODEL: model},
        clock=FakeClock(),
        ids=SequentialIds(),
        **options,
    )


async def create_small_agent(perdure: AsyncPerdure, window: int = WINDOW, **options: Any) -> AsyncAgent:
    """An agent with a window of a few messages, and no summaries that were prepared before it is full."""
    settings = {"context_window_tokens": window, "summaries": {"background": False}, "auto_recall": False}
    return await perdure.create_agent("a", model=MODEL, settings=settings, **options)


def select_events(events: list[Any], kind: type[Any]) -> list[Any]:
    stored = [sent.event for sent in events if isinstance(sent, StoredEvent)]
    return [event for event in stored if isinstance(event, kind)]


async def compactions_of(agent: AsyncAgent, *messages: str) -> list[ViewCompacted]:
    """The compactions that these messages bring about."""
    found: list[ViewCompacted] = []
    for message in messages:
        found += select_events([sent async for sent in agent.stream(message)], ViewCompacted)
    return found


def summary(request: ModelRequest) -> dict[str, Any]:
    (shown,) = (message.text for message in request.messages if message.kind == "summary")
    found: dict[str, Any] = json.loads(shown)
    return found


async def test_what_left_the_view_stands_behind_a_summary_of_the_model_s() -> None:
    """Marked as history, with the handle that opens it; the model was shown what it summarised, and no tools."""
    model = ScriptedModel(summarises=says("Message 0 and the next: word after word."))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        done = await compactions_of(agent, *(f"message {number} {FILLER}" for number in range(20)))

    assert done
    assert {compaction.made_by for compaction in done} == {"model"}
    shown = summary(model.requests[-1])
    assert shown["type"] == "summary"
    assert "no instruction" in shown["note"]
    assert "word after word" in shown["nodes"][-1]["summary"]
    assert shown["nodes"][-1]["handle"].startswith("node-")
    assert "message 0" in model.summary_requests[0].messages[-1].text
    assert model.summary_requests[0].tools == ()


async def test_without_a_summary_from_the_model_an_extract_stands_there() -> None:
    """Why is recorded; what a user told of themselves is in it."""
    model = ScriptedModel()  # it fails when it is asked for a summary
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        done = await compactions_of(
            agent, "My name is Ada Lovelace and my order is A-4711.", *(FILLER for _ in range(20))
        )

    assert {compaction.made_by for compaction in done} == {"extract"}
    assert all("ModelError" in (compaction.rejected or "") for compaction in done)
    first = next(request for request in model.requests if any(one.kind == "summary" for one in request.messages))
    assert "A-4711" in summary(first)["nodes"][0]["summary"]


def answer_garbage(request: ModelRequest) -> ModelReply:
    return says("zxq " * 50)


ADVERSARIES: dict[str, Callable[[ModelRequest], ModelReply]] = {
    "empty": lambda request: says(""),
    "garbage": answer_garbage,
    "huge": lambda request: says("and then they spoke of words again " * 700),
    "echo": lambda request: says(request.messages[-1].text),
    "prompt": lambda request: says(request.system),
    "apology": lambda request: says("I'm sorry, but I can't help with that."),
}


class Slow:
    """A model that takes for ever over a summary."""

    def __init__(self) -> None:
        self.summaries = 0
        self.arrived = asyncio.Event()

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose == "summary":
            self.summaries += 1
            self.arrived.set()
            await asyncio.sleep(3_600)
        yield says("OK.")


@pytest.mark.slow
@pytest.mark.parametrize("adversary", [*ADVERSARIES])
async def test_many_compactions_with_a_bad_summariser_lose_nothing(adversary: str) -> None:
    """No loop, at most two calls each; all that was said is behind a handle, and the next message is answered."""
    model = ScriptedModel(summarises=ADVERSARIES[adversary])
    store = InlineStore()
    async with await open_library(model, store=store) as perdure:
        agent = await create_small_agent(perdure, 6_000)
        done: list[ViewCompacted] = []
        number = 0
        while len(done) < COMPACTIONS:
            done += await compactions_of(agent, f"message {number} {FILLER}")
            number += 1

        assert number < 400
        assert len(model.requests) == number
        assert len(model.summary_requests) == 2 * len(done)
        assert {compaction.method for compaction in done} == {"fallback"}
        assert {compaction.made_by for compaction in done} == {"extract"}
        assert await list_hidden_and_shown(store, agent) == list(range(2 * number + count_notes(done)))


def count_notes(done: Sequence[ViewCompacted]) -> int:
    """How many rows of the log say that messages left the view."""
    return sum(not compaction.merged for compaction in done)


async def list_hidden_and_shown(store: InlineStore, agent: AsyncAgent) -> list[int]:
    """The numbers of all messages that are in view or behind a node in view."""

    def look(tx: Tx) -> list[int]:
        prefix = tx.prefixes.get(agent.id, tx.conversations.get_by_seq(agent.id, 0).prefix_seq or 0)
        nodes = tx.nodes.list_by_seqs(agent.id, 0, prefix.nodes)
        hidden = [seq for node in nodes for seq in range(node.from_message_seq, node.upto_message_seq + 1)]
        rows = tx.messages.list(agent.id, after_seq=prefix.from_message_seq - 1, limit=1_000, kinds=None)
        return [*hidden, *(message.seq for message in rows)]

    return await store.read(look)


async def test_many_compactions_with_a_summariser_that_does_not_answer_lose_nothing() -> None:
    """Each is given up after its time, the extract takes its place, and every message is answered."""
    model, store = Slow(), InlineStore()
    async with await open_library(model, store=store) as perdure:
        ports = perdure.app.ports
        object.__setattr__(ports, "settings", replace(ports.settings, summary_timeout_s=0.02))
        agent = await create_small_agent(perdure, 6_000)
        done: list[ViewCompacted] = []
        number = 0
        while len(done) < COMPACTIONS:
            done += await compactions_of(agent, f"message {number} {FILLER}")
            number += 1

        assert model.summaries == len(done)
        assert all("no summary within" in (compaction.rejected or "") for compaction in done)
        assert await list_hidden_and_shown(store, agent) == list(range(2 * number + count_notes(done)))


async def test_a_run_can_be_cancelled_while_a_summary_is_made() -> None:
    """Nothing of it is stored."""
    model = Slow()

    async def wait_for_end(run_id: RunId) -> None:
        async for _ in agent.follow(run_id):
            pass

    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        for _ in range(20):
            run_id = (await agent.submit(FILLER)).run.id
            asked, end = (asyncio.create_task(waited) for waited in (model.arrived.wait(), wait_for_end(run_id)))
            await asyncio.wait({asked, end}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if model.summaries:
                await agent.cancel(run_id)
            await end
            if model.summaries:
                break

        assert (await agent.run(run_id)).status == "cancelled"
        assert await perdure.app.store.read(lambda tx: tx.nodes.list(agent.id, 0)) == []


class Meanwhile(ScriptedModel):
    """A model that, while it writes its first summary, lets something else happen."""

    def __init__(self, **script: Any) -> None:
        super().__init__(**script)
        self.happens: Callable[[], Awaitable[Any]] | None = None

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        happens, self.happens = self.happens, self.happens if request.purpose != "summary" else None
        if request.purpose == "summary" and happens is not None:
            await happens()
        async for piece in super().respond(request):
            yield piece


async def test_a_window_that_grows_while_a_summary_is_written_keeps_its_messages() -> None:
    """The plan was for another window."""
    model = Meanwhile(summarises=says("Message 0 and the next: word after word."))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        large = {"context_window_tokens": 100_000, "auto_recall": False, "summaries": {"background": False}}
        model.happens = lambda: agent.update(settings=large)
        done = await compactions_of(agent, *(f"message {number} {FILLER}" for number in range(20)))

        assert len(model.summary_requests) == 1
        assert done == []


async def test_a_message_that_changes_while_it_is_summarised_is_summarised_anew() -> None:
    """As an erasure changes it, which may go on while a run begins."""
    model = Meanwhile(summarises=lambda request: says(str(request.messages)[-2_000:]))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)

        async def redact() -> None:
            message = next(one for one in await agent.messages() if "message 0" in one.text)
            author = Author(kind="user", id="ann")
            await perdure.app.ports.store.write(
                lambda tx: tx.messages.revise(message.id, [Text(f"redacted {FILLER}")], author=author, at=START)
            )

        model.happens = redact
        done = await compactions_of(agent, *(f"message {number} {FILLER}" for number in range(20)))

        nodes = await perdure.app.ports.store.read(lambda tx: tx.nodes.list(agent.id, 0))
        assert done
        assert len(model.summary_requests) > len(done)
        assert not [node for node in nodes if "message 0 " in node.text]


async def test_what_a_summary_takes_counts_for_the_day() -> None:
    """With what the run's own calls take."""
    model = ScriptedModel(summarises=says("Message 0 and the next: word after word."))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        settings = {"context_window_tokens": WINDOW, "auto_recall": False, "summaries": {"background": False}}
        await agent.update(settings={**settings, "limits": {"tokens_per_day": 10**9}})
        done = await compactions_of(agent, *(f"message {number} {FILLER}" for number in range(20)))
        used = await perdure.app.ports.store.read(
            lambda tx: tx.used.get(agent.id, day_of(perdure.app.ports.clock.now()))
        )
        runs = await agent.runs(limit=100)

        assert [one.method for one in done if one.made_by == "model"]
        assert used.tokens == sum(run.usage.total_tokens for run in runs)
        assert used.tokens > sum([step.usage.total_tokens for run in runs for step in await agent.steps(run_id=run.id)])


async def test_a_message_larger_than_the_window_is_shown_in_part_with_a_handle_to_the_rest() -> None:
    """The model opens the middle of it by the handle it is told."""
    needle = "the needle is 4711"
    text = f"{'hay ' * 12_000}\n{needle}\n{'straw ' * 12_000}"

    def look(request: ModelRequest) -> ModelReply:
        shown = request.messages[-1].text
        assert needle not in shown
        handle = shown.split('context_expand("')[1].split('"')[0]
        return calls("context_expand", handle=handle, grep="needle")

    model = ScriptedModel(look, lambda request: says(request.messages[-1].text))
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        reply = await agent.send(text)
        assert (await agent.messages())[0].text == text  # what was said stays whole

    assert needle in reply.text
    assert all(tokens_of_request(request) <= WINDOW for request in model.requests)


async def test_without_tools_a_message_that_does_not_fit_ends_the_run_before_the_call() -> None:
    """The sizes are told; the message is kept, and the next one is answered."""
    model = ScriptedModel()
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure, tools=[])
        with pytest.raises(
            RunFailed, match=r"window of 8,000 tokens, 2,000 of them kept .*newest turn [\d,]{6}"
        ) as end:
            await agent.send("hay " * 30_000)
        assert end.value.stop_reason == "context_window_overflow_in_system_prompt"
        assert model.requests == []
        assert (await agent.send("hello")).text == "OK."
        assert len(await agent.messages()) == 3

    assert summary(model.requests[0])["hidden_messages"] == 1


async def test_blocks_larger_than_the_window_end_the_run_before_the_call() -> None:
    """And once they are shortened, the agent answers."""
    model = ScriptedModel()
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        await agent.blocks.create("long", "hay " * 20_000, limit_chars=1_000_000)
        with pytest.raises(RunFailed, match="memory blocks"):
            await agent.send("hello")
        await agent.blocks.update("long", "short")
        assert (await agent.send("hello?")).text == "OK."


async def test_a_large_result_is_cut_before_older_messages_leave() -> None:
    """It alone was too large: what was said before stays in view, and no summary is asked for."""

    def big() -> str:
        """Return much."""
        return "row\n" * 20_000

    model = ScriptedModel(says("one"), calls("big"), says("two"))
    async with await open_library(model, tools=[big]) as perdure:
        agent = await create_small_agent(perdure, tools=["big"])
        await agent.send("hello")
        events = [sent async for sent in agent.stream("now the big one")]

    assert len(select_events(events, RowsCut)) >= 1
    assert select_events(events, ViewCompacted) == []
    assert select_events(events, PrefixRewritten) == []  # nothing that was sent has changed
    assert model.requests[-1].messages[0].text == "hello"
    assert 'context_expand("msg-4")' in model.requests[-1].messages[-1].text
    assert tokens_of_request(model.requests[-1]) <= WINDOW


async def test_a_run_longer_than_the_window_keeps_what_it_was_asked() -> None:
    """Its own older calls leave the view; the question stays, before the calls that are left."""

    def look(number: int) -> str:
        """Look.

        Args:
            number: which one.
        """
        return f"{number} {FILLER}"

    looks = [calls("look", number=number) for number in range(40)]
    model = ScriptedModel(says("hello"), *looks, says("done"))
    async with await open_library(model, tools=[look]) as perdure:
        agent = await create_small_agent(perdure, tools=["look"])
        await agent.send("before")
        events = [sent async for sent in agent.stream("please look at all of them")]

    assert len(select_events(events, ViewCompacted)) > 3
    for request in model.requests[2:]:
        assert "please look at all of them" in [message.text for message in request.messages]
        assert tokens_of_request(request) <= WINDOW


class Strict:
    """A model whose window is smaller than anybody knows."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.sizes: list[int] = []

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        tokens = tokens_of_request(request)
        if request.purpose == "summary":
            yield says("Message after message: word after word.")
            return
        self.sizes.append(tokens)
        if tokens > self.window:
            raise ModelOverflow(f"maximum context length is {self.window} tokens")
        yield ModelReply(parts=(Text("OK."),), usage=Usage(input_tokens=tokens, output_tokens=1))


async def test_an_overflow_despite_the_certificate_is_corrected_once() -> None:
    """The estimate is corrected, something leaves the view, and the second request fits: the run goes on."""
    model = Strict(6_000)
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure, 12_000)
        replies = [await agent.send(f"{number} {FILLER}") for number in range(40)]

    assert {reply.text for reply in replies} == {"OK."}
    over = [index for index, size in enumerate(model.sizes) if size > model.window]
    assert over
    assert all(model.sizes[index + 1] <= model.window for index in over)


async def test_an_overflow_that_stays_ends_the_run_with_its_reason() -> None:
    """Two calls and no more; the message is kept."""
    model = Strict(100)
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure)
        with pytest.raises(RunFailed, match=r"its provider refused about [\d,]+ as too large"):
            await agent.send("hello")
        assert len(model.sizes) <= 2
        assert [message.text for message in await agent.messages()] == ["hello"]


class Weighing(ScriptedModel):
    """Says how much it was sent; `factor` makes it another tokenizer's count."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__(summarises=says("Message after message: word after word."))
        self.factor = factor

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        async for piece in super().respond(request):
            if isinstance(piece, ModelReply) and self.factor:
                tokens = int(tokens_of_request(request) * self.factor)
                piece = replace(piece, usage=Usage(input_tokens=tokens, output_tokens=1))
            yield piece


@pytest.mark.slow
async def test_what_the_provider_measured_lets_more_stay_in_view() -> None:
    """An upper estimate is too high for ordinary words; with it corrected a window holds more of them."""
    counts = []
    for factor in (0.0, 1.0):
        model = Weighing(factor)
        async with await open_library(model) as perdure:
            agent = await create_small_agent(perdure, 20_000)
            counts.append(len(await compactions_of(agent, *(f"{number} {FILLER}" for number in range(80)))))
        assert all(tokens_of_request(request) <= 15_000 for request in model.requests)

    assert counts[0] > counts[1] > 0


async def test_a_model_that_counts_more_than_estimated_is_remembered() -> None:
    """Its next conversation begins with the factor that was measured, and so fits from the start."""
    model = Weighing(2.5)
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure, 20_000)
        await agent.send(FILLER)
        factor = await perdure.app.store.read(lambda tx: tx.steps.get_factor(MODEL))
        other = await perdure.create_agent("b", model=MODEL)
        await other.send("hello")
        step = (await perdure.app.store.read(lambda tx: tx.steps.list_by_run(tx.runs.list(other.id)[0].key)))[0]

    assert factor > 1.1
    assert step.recipe.estimator == pytest.approx(factor, rel=0.2)


async def test_what_was_measured_of_tools_and_prompt_outlives_a_rewrite() -> None:
    """By the estimate alone they would fill this window; measured once, there is room, also behind a new prefix."""
    model = Weighing()
    async with await open_library(model) as perdure:
        agent = await create_small_agent(perdure, 5_100)
        done = await compactions_of(agent, *(f"{number} {FILLER[:600]}" for number in range(40)))
        await agent.tools.detach("memory_insert")
        await agent.send("and without it?")
        overview = await agent.context()

    assert len(done) > 3
    assert all(tokens_of_request(request) <= 5_100 * 3 // 4 for request in model.requests)
    assert sum(part.estimated_tokens for part in overview.parts) > 5_100 * 3 // 4
