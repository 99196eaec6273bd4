"""Twelve scripted conversations, in small windows, and what has to hold of each of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure import AsyncAgent, AsyncPerdure, tool
from perdure.context.engines.port import ContextEngine
from perdure.context.sections.assemble import assemble, canonical, check_legal, digest_of
from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.errors import ModelOverflow
from perdure.core.events import EngineQuarantined, Event, ViewCompacted, ViewFull
from perdure.core.messages import Text, ToolCall, ToolDecision
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.nodes import SummaryNode
from perdure.core.runs import Usage
from perdure.core.tools.answers import ToolReturn
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import RequiresApproval
from perdure.domain.blocks.units import NewBlock
from perdure.engine.run.request import load_view
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, SequentialIds

MODEL = "test/speaker"
WINDOW = 6_000
FILLER = "the harbour question of Ada is open again "
BASH = {
    "name": "Bash",
    "description": "Run.",
    "parameters": {"type": "object", "properties": {"c": {"type": "string"}}},
}


@tool
def dump(chars: int) -> str:
    """Return a text.

    Args:
        chars: how long it is.
    """
    return "".join(f"{number}: value {number * 7919 % 1009}\n" for number in range(chars // 14))


@tool
def pay(n: int = 0) -> str:
    """Pay."""
    return f"paid {n}"


def call(name: str, *, call_id: str = "c", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments))


@dataclass
class Speaker:
    """A model that says what it was handed, else a line; it keeps what it is sent."""

    script: list[Any] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    summary_sources: list[str] = field(default_factory=list)
    line: str = "noted"
    waits: asyncio.Event = field(default_factory=asyncio.Event)

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if request.purpose == "summary":
            self.summary_sources.append(request.messages[-1].text)
            yield ModelReply(parts=(Text("Ada asked about the harbour question, which is open again."),))
            return
        self.requests.append(request)
        answer = self.script.pop(0) if self.script else self.line
        if isinstance(answer, Exception):
            raise answer
        if answer is None:  # it never comes
            self.waits.set()
            await asyncio.Event().wait()
        parts = (Text(answer),) if isinstance(answer, str) else tuple(answer)
        yield ModelReply(parts=parts, usage=Usage())


@dataclass
class Stage:
    """A store with one agent, whose engine is under test."""

    perdure: AsyncPerdure
    agent: AsyncAgent
    model: Speaker
    open: Callable[[], Awaitable[AsyncPerdure]]

    async def say(self, text: str, *answers: Any, **options: Any) -> None:
        self.model.script = list(answers)
        await self.agent.send(text, **options)


async def small_talk(stage: Stage) -> None:
    for number in range(8):
        await stage.say(f"message {number} {FILLER * 30}")


async def huge_results(stage: Stage) -> None:
    for number in range(3):
        await stage.say(f"look {number}", [call("dump", chars=2_000 + 9_000 * (number % 2))], "seen")


async def parallel_calls(stage: Stage) -> None:
    for number in range(2):
        many = [call("dump", call_id=f"c{number}-{index}", chars=700) for index in range(8)]
        await stage.say(f"all of them, {number}", many, [*many[:2]], "seen")


async def pending_approval(stage: Stage) -> None:
    for number in range(3):
        await stage.say(f"message {number} {FILLER * 50}")
    await stage.say(f"pay {FILLER * 30}", [call("dump", call_id="d", chars=4_000), call("pay", call_id="p", n=1)])
    stage.model.script = [[call("dump", call_id="e", chars=6_000)], "paid"]
    await stage.agent.answer([ToolDecision("p", True)])
    await stage.say(f"thanks {FILLER * 40}")


async def memory_edits(stage: Stage) -> None:
    for number in range(6):
        if number % 2:
            await stage.agent.blocks.update("human", f"edit {number}: {FILLER * (number % 5)}")
        edit = call("core_memory_append", label="notes", content=f"note {number}")
        await stage.say(f"message {number} {FILLER * 40}", [edit], "kept")


async def tiny_window(stage: Stage) -> None:
    await stage.agent.update(settings=dict(stage.agent.info.settings) | {"context_window_tokens": 4_400})
    for number in range(4):
        await stage.say(f"message {number} {FILLER * 4}", [call("dump", chars=3_000)], "seen")


async def overflow(stage: Stage) -> None:
    for number in range(6):
        await stage.say(f"message {number} {FILLER * 18}")
    await stage.say(f"too much {FILLER * 40}", ModelOverflow("maximum context length exceeded"), "it fits")
    await stage.say(f"go on {FILLER * 14}", [call("dump", chars=3_000)], ModelOverflow("too long"), "again")


async def client_tools(stage: Stage) -> None:
    for number in range(4):
        stage.model.script = [[call("Bash", call_id=f"b{number}", c="ls")]]
        reply = await stage.agent.send(f"run {number} {FILLER * 40}", client_tools=[BASH])
        assert [one.name for one in reply.pending] == ["Bash"]
        stage.model.script = ["done"]
        await stage.agent.answer(
            [ToolReturn(f"b{number}", dump.__wrapped__(1_500) if hasattr(dump, "__wrapped__") else "x" * 900)]
        )


async def autoclear(stage: Stage) -> None:
    settings = dict(stage.agent.info.settings)
    for number in range(6):
        if number == 2:
            await stage.agent.update(settings=settings | {"message_buffer_autoclear": True})
        if number == 4:
            await stage.agent.update(settings=settings)
        await stage.say(f"message {number} {FILLER * 40}", [call("dump", chars=2_000)], "seen")


async def imported(stage: Stage) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    history = [
        ("user" if number % 2 == 0 else "assistant", None, f"{number} {FILLER * 10}", start + timedelta(hours=number))
        for number in range(30)
    ]
    await stage.agent.import_messages(history)
    for number in range(3):
        await stage.say(f"message {number} {FILLER * 30}")


async def be_killed(stage: Stage, text: str, *answers: Any) -> None:
    """Send a message; the process ends while the model makes the answer behind these, and another one begins."""
    stage.model.script = [*answers, None]
    sending = asyncio.create_task(stage.agent.send(text))
    await stage.model.waits.wait()
    sending.cancel()
    await stage.perdure.close()
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await sending
    stage.perdure = await stage.open()
    stage.agent = await stage.perdure.agent(stage.agent.id)


async def killed(stage: Stage) -> None:
    """The process ends while the model answers, and another one takes the run over."""
    for number in range(3):
        await stage.say(f"message {number} {FILLER * 45}")
    await be_killed(stage, f"and now {FILLER}", [call("dump", chars=5_000)])
    for number in range(2):
        await stage.say(f"later {number} {FILLER * 40}")


async def unicode(stage: Stage) -> None:
    texts = ("我们昨天在图灵，决定使用数据库。", "🧭👩‍👩‍👧é→ß ", "\x00 \ud800 \x1b <value> ", "Ünïcödé ")
    for number in range(6):
        await stage.say(f"{number} {texts[number % 4] * 60}", [call("dump", chars=800)], texts[(number + 1) % 4] * 8)


STORIES: Mapping[str, Callable[[Stage], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        *(small_talk, huge_results, parallel_calls, pending_approval, memory_edits, tiny_window),
        *(overflow, client_tools, autoclear, imported, killed, unicode),
    )
}


@dataclass(frozen=True)
class Told:
    """What came of a story: the requests as they were sent, their steps as they were stored, and all that is stored."""

    sent: Sequence[ModelRequest]
    rebuilt: Sequence[ModelRequest]
    digests: Sequence[str]
    windows: Sequence[int]
    statuses: Sequence[str]
    stop_reasons: Sequence[str | None]
    events: Sequence[Event]
    shown: Sequence[SummaryNode]
    nodes: Mapping[int, SummaryNode]
    prefixes: Sequence[Sequence[int]]
    """The summaries in view, of each prefix."""
    summary_sources: Sequence[str]
    from_seq: int
    pinned: Sequence[int]
    messages: Sequence[int]

    def events_of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def by(self) -> set[str]:
        return {event.by for event in self.events_of(ViewFull)}


async def tell(
    story: Callable[[Stage], Awaitable[None]],
    engine: Any,
    engines: Mapping[str, Callable[..., ContextEngine]] | None = None,
    **settings: Any,
) -> Told:
    """Play a story with an agent that has this context engine."""
    model, store, clock, ids = Speaker(), InlineStore(), FakeClock(), SequentialIds()

    async def open_perdure() -> AsyncPerdure:
        return await AsyncPerdure.open(
            store=_Kept(store),
            models={MODEL: model},
            tools=[dump, pay],
            clock=clock,
            ids=ids,
            settings=Settings(model=MODEL, embedding="none", facts="off"),
            context_engines=engines,
        )

    perdure = await open_perdure()
    chosen = {} if engine is None else {"context_engine": engine}
    agent = await perdure.create_agent(
        "told",
        model=MODEL,
        tools=("dump", "pay", "core_memory_append"),
        blocks=[NewBlock(label="notes", limit_chars=2_000), NewBlock(label="human", limit_chars=2_000)],
        settings={
            "context_window_tokens": WINDOW,
            "tool_rules": rules_to_settings([RequiresApproval("pay")]),
            "tool_output": "off",
            "summaries": {"leaf_min_fanout": 2},
            **chosen,
            **settings,
        },
    )
    stage = Stage(perdure, agent, model, open_perdure)
    try:
        await story(stage)
        while tasks := stage.perdure.app.runner.after_runs.tasks:
            await asyncio.wait(tasks)
        return await store.read(_told, agent.id, model)
    finally:
        await stage.perdure.close()
        await store.close()


class _Kept:
    """The store, which stays open when a process ends."""

    def __init__(self, store: InlineStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self) -> None:
        pass


def _told(tx: Tx, agent_id: Any, model: Speaker) -> Told:
    rebuilt, digests, windows, statuses = [], [], [], []
    events: list[Event] = []
    runs = tx.runs.list(agent_id, limit=1_000)[::-1]
    for run in runs:
        events += [one.event for one in tx.events.list(run.key, limit=10_000)]
        for step in tx.steps.list_by_run(run.key):
            rebuilt.append(assemble(step.model, load_view(tx, run, step.recipe), step.recipe))
            digests.append(step.recipe.digest)
            windows.append(step.recipe.window_tokens)
            statuses.append(step.status)
    conversation = tx.conversations.get_by_seq(agent_id, 0)
    prefix = tx.prefixes.get(agent_id, conversation.prefix_seq or 0)
    return Told(
        model.requests,
        rebuilt,
        digests,
        windows,
        statuses,
        [run.stop_reason for run in runs],
        events,
        tx.nodes.list_by_seqs(agent_id, 0, prefix.nodes),
        {node.seq: node for node in tx.nodes.list(agent_id, 0, limit=10_000)},
        [tx.prefixes.get(agent_id, seq).nodes for seq in range(prefix.seq + 1)],
        model.summary_sources,
        prefix.from_message_seq,
        prefix.pinned,
        [row.seq for row in tx.messages.list(agent_id, limit=10_000)],
    )


def every_run_has_ended(told: Told) -> None:
    assert set(told.stop_reasons) <= {"end_turn", "requires_approval"}


def every_request_is_legal_and_fits(told: Told) -> None:
    counter = ScriptTokenCounter()
    for request, window in zip(told.sent, told.windows, strict=True):
        check_legal(request.messages)
        assert counter.count(canonical(request).decode("utf-8", "replace")) <= window


def every_request_can_be_rebuilt(told: Told) -> None:
    assert list(map(digest_of, told.rebuilt)) == list(told.digests)
    assert list(map(digest_of, told.sent)) == list(told.digests)


def every_message_is_reachable(told: Told) -> None:
    """In view, or at most 2 + log2(n) handles away; but for those that the owner had cleared."""
    hops: dict[int, int] = {}

    def open_node(node: SummaryNode, hop: int) -> None:
        if not node.children:
            for seq in told.messages:
                if node.from_message_seq <= seq <= node.upto_message_seq:
                    hops.setdefault(seq, hop)
        for child in node.children:
            open_node(told.nodes[child], hop + 1)

    for node in told.shown:
        open_node(node, 1)
    hidden = {seq for seq in told.messages if seq < told.from_seq} - set(told.pinned)
    assert hidden <= set(hops)
    assert max(hops.values(), default=0) <= 2 + math.log2(max(1, len(told.messages)))


def each_eviction_makes_the_view_smaller(told: Told) -> None:
    for compaction in told.events_of(ViewCompacted):
        assert compaction.merged or compaction.tokens_after < compaction.tokens_before


def nobody_is_quarantined(told: Told) -> None:
    assert told.events_of(EngineQuarantined) == []
