"""The promises of the context, over random logs, windows, tools, edits and faults."""

from __future__ import annotations

import asyncio
import base64
import functools
import io
import json
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from perdure import AsyncPerdure, RunFailed
from perdure.context.sections.assemble import assemble, canonical, check_legal, digest_of
from perdure.context.window.leaves import COLD_AFTER
from perdure.core.conversations import CompactionMode
from perdure.core.errors import ModelError, ModelOverflow
from perdure.core.events import PrefixRewritten, ViewCompacted, ViewFull
from perdure.core.ids import AgentId
from perdure.core.messages import Message, Text, ToolCall
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.nodes import SummaryNode
from perdure.core.runs import Prefix, Usage
from perdure.domain.blocks.units import NewBlock
from perdure.engine.run.request import load_view
from perdure.features.costs.ledger import CostLedger
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, SequentialIds
from tests.support.real_tokens import tokens_of_request
from tests.support.strategies import effort

MODEL = "test/talker"
RESERVE = 8_000  # of the engine, but of a small window a quarter

Kind = Literal["english", "chinese", "json", "base64", "numbers", "signs", "random", "emoji"]
KINDS: tuple[Kind, ...] = ("english", "chinese", "json", "base64", "numbers", "signs", "random", "emoji")


def words(kind: Kind, chars: int, seed: int) -> str:
    """So many characters of a kind of text."""
    rng = random.Random(f"{kind} {seed}")

    def some(*choices: str) -> str:
        text = io.StringIO()
        while text.tell() < chars:
            text.write(rng.choice(choices))
        return text.getvalue()[:chars]

    match kind:
        case "english":
            return some("the ", "harbour ", "question ", "of ", "Ada ", "wrote ", "yesterday, ", "it is. ", "unlikely ")
        case "chinese":
            return some("我们", "昨天", "在", "图灵", "，", "决定", "使用", "数据库", "。")
        case "json":
            return some('{"id": 17, ', '"name": "x_1"}, ', "[true, ", "null], ", '"path": "/a/b.py", ')
        case "base64":
            return base64.b64encode(rng.randbytes(chars)).decode()[:chars]
        case "numbers":
            return some("2 + 2 = 4; ", "3.14159 ", "1,000,000 ", "2026-11-21T05:40:17 ")
        case "signs":
            return some("->", "}{", "();", "\n\t", "**", "|", "!=", "#")
        case "random":
            return "".join(
                chr(rng.choice((rng.randrange(32, 127), rng.randrange(32, 127), 0xE9))) for _ in range(chars)
            )
        case "emoji":
            return some("🧭", "👩‍👩‍👧", "é", "→ ", "ß")


@dataclass(frozen=True)
class Answer:
    """What the model says to one request: text, or a call of a tool that answers with so much of a kind."""

    what: Literal["text", "dump", "remember", "overflow", "down"]
    kind: Kind = "english"
    chars: int = 100
    seed: int = 0


@dataclass(frozen=True)
class Say:
    kind: Kind
    chars: int
    seed: int
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Outside:
    """Something that happens between two messages."""

    what: Literal["edit", "window", "wait"]
    value: int = 0


ENGINES: dict[str, Any] = {
    "stubs": {"name": "composition", "options": {"assembler": "message_buffer", "compressor": "stubs"}},
    "extract": {"name": "composition", "options": {"assembler": "sliding_window", "compressor": "extract"}},
}
"""Compositions of engines that Perdure ships."""


@dataclass(frozen=True)
class World:
    window: int
    tools: tuple[str, ...]
    summariser: Literal["good", "empty", "echo", "down", "huge"]
    honest: bool
    """Whether the model tells what it measured."""
    engine: str = "paged"
    mode: CompactionMode | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What the agent needs for its context engine, and for who writes its summaries."""
        engine = {} if self.engine == "paged" else {"context_engine": ENGINES.get(self.engine, self.engine)}
        return engine if self.mode is None else {**engine, "compaction": {"mode": self.mode}}


@dataclass
class Talker:
    """A model that gives the answers it was handed, weighs what it is sent, and keeps it."""

    world: World
    window: int = 0
    answers: list[Answer] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    """What it measured of the requests that it answered."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        real = tokens_of_request(request)
        room = request.options.max_output_tokens if request.purpose == "summary" else min(RESERVE, self.window // 4)
        if real + (room or 0) > self.window:
            self.too_large.append(f"{request.purpose}: {real} tokens in a window of {self.window}")
        usage = Usage(input_tokens=real if self.world.honest else 0, output_tokens=5)
        if request.purpose == "summary":
            yield ModelReply(parts=self._summary(request), usage=usage)
            return
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else Answer("text")
        match answer.what:
            case "overflow":
                raise ModelOverflow("maximum context length exceeded")
            case "down":
                raise ModelError("down")
            case _:
                self.usages.append(usage)
        match answer.what:
            case "dump":
                arguments = json.dumps({"kind": answer.kind, "chars": answer.chars, "seed": answer.seed})
                yield ModelReply(parts=(ToolCall("call", "dump", arguments),), usage=usage)
            case "remember":
                arguments = json.dumps({"label": "notes", "content": f"note {answer.seed}"})
                yield ModelReply(parts=(ToolCall("call", "core_memory_append", arguments),), usage=usage)
            case _:
                text = words(answer.kind, max(1, answer.chars), answer.seed)  # an empty one is paid for, too
                yield ModelReply(parts=(Text(text),), usage=usage)

    def _summary(self, request: ModelRequest) -> tuple[Text, ...]:
        own = len(request.messages) > 1 and request.messages[-1].kind == "alert"  # behind the agent's own request
        source = request.messages[-2 if own else -1].text
        match self.world.summariser:
            case "good":
                return (Text("They spoke of " + " ".join(source.split()[-30:-5])),)
            case "empty":
                return ()
            case "echo":
                return (Text(source),)
            case "huge":
                return (Text("the harbour question " * 20_000),)
            case "down":
                raise ModelError("down")


def dump(kind: str, chars: int, seed: int) -> str:
    """Return a text.

    Args:
        kind: what kind of text.
        chars: how long it is.
        seed: which one.
    """
    return words(kind, chars, seed)  # type: ignore[arg-type]


answers = st.builds(
    Answer,
    st.sampled_from(["text", "dump", "dump", "dump", "remember", "overflow", "down"]),
    st.sampled_from(KINDS),
    st.one_of(st.integers(1, 400), st.integers(400, 12_000)),
    st.integers(0, 5),
)
says = st.builds(
    Say,
    st.sampled_from(KINDS),
    st.one_of(st.integers(1, 300), st.integers(300, 6_000), st.integers(6_000, 40_000)),
    st.integers(0, 5),
    st.lists(answers, max_size=4).map(tuple),
)
outside = st.builds(Outside, st.sampled_from(["edit", "window", "wait"]), st.integers(0, 5))
histories = st.lists(st.one_of(says, says, says, outside), min_size=1, max_size=14)
worlds = st.builds(
    World,
    st.sampled_from([4_000, 6_000, 9_000, 16_000, 40_000]),
    st.sampled_from([("dump", "core_memory_append"), ("dump", "core_memory_append", "conversation_search"), ()]),
    st.sampled_from(["good", "empty", "echo", "down", "huge"]),
    st.booleans(),
    st.sampled_from([*["paged"] * 4, "sliding_window", "recursive_summary", "message_buffer", "stubs", "extract"]),
    st.sampled_from([None, None, None, "self_compact_sliding_window", "self_compact_all"]),
)


@dataclass
class Played:
    """What came of a history: what the model was sent, and what the store holds of it."""

    talker: Talker
    agent_id: AgentId
    edits: list[tuple[int, str]]
    """(how many requests there were before, the value that a block was given)."""
    floors: int
    record: Record
    ledger: CostLedger


@dataclass
class Record:
    requests: list[tuple[ModelRequest, str, int]]
    """Each recorded request, rebuilt, with its recorded digest and the number of its prefix."""
    compactions: list[ViewCompacted]
    reasons: dict[int, str]
    prefixes: dict[int, Prefix]
    full: list[tuple[datetime, ViewFull]]
    """Each time that a view was found too large, or cheaper with summaries."""
    asked_at: list[datetime]
    """When each request was recorded."""
    messages: Sequence[Message]
    prefix: Prefix | None
    nodes: dict[int, SummaryNode]


async def play(world: World, history: Sequence[Say | Outside]) -> Played:
    talker, clock, store = Talker(world, world.window), FakeClock(), InlineStore()
    edits: list[tuple[int, str]] = []
    floors = 0
    async with await AsyncPerdure.open(
        store=store, models={MODEL: talker}, tools=[dump], clock=clock, ids=SequentialIds()
    ) as perdure:
        agent = await perdure.create_agent(
            "played",
            model=MODEL,
            tools=world.tools,
            blocks=[NewBlock(label="notes", limit_chars=2_000), NewBlock(label="human", limit_chars=2_000)],
            settings={"context_window_tokens": world.window, **world.settings},
        )
        for number, act in enumerate(history):
            match act:
                case Say():
                    talker.answers = [answer for answer in act.answers if world.tools or answer.what != "dump"]
                    try:
                        await agent.send(f"message {number}: {words(act.kind, act.chars, act.seed)}")
                    except RunFailed as failed:
                        floors += failed.stop_reason == "context_window_overflow_in_system_prompt"
                case Outside("edit", value):
                    text = f"edit {number}: {words('english', 40 * value, value)}"
                    await agent.blocks.update("human", text)
                    edits.append((len(talker.requests), text))
                case Outside("window", value):
                    talker.window = world.window + 1_000 * value
                    await agent.update(settings={"context_window_tokens": talker.window, **world.settings})
                case _:
                    clock.advance(7_200)
        ledger = await agent.costs(limit=10_000)
        return Played(talker, agent.id, edits, floors, await store.read(recorded, agent.id), ledger)


def recorded(tx: Tx, agent_id: AgentId) -> Record:
    requests: list[tuple[ModelRequest, str, int]] = []
    compactions: list[ViewCompacted] = []
    reasons: dict[int, str] = {}
    full: list[tuple[datetime, ViewFull]] = []
    asked_at: list[datetime] = []
    for run in reversed(tx.runs.list(agent_id, limit=1000)):
        for stored in tx.events.list(run.key, limit=10_000):
            if isinstance(stored.event, ViewCompacted):
                compactions.append(stored.event)
            elif isinstance(stored.event, ViewFull):
                full.append((stored.created_at, stored.event))
            elif isinstance(stored.event, PrefixRewritten):
                assert stored.event.prefix_seq not in reasons
                reasons[stored.event.prefix_seq] = stored.event.reason
        for step in tx.steps.list_by_run(run.key):
            request = assemble(step.model, load_view(tx, run, step.recipe), step.recipe)
            requests.append((request, step.recipe.digest, step.recipe.prefix_seq))
            asked_at.append(step.created_at)
    conversation = tx.conversations.get_by_seq(agent_id, 0)
    return Record(
        requests,
        compactions,
        reasons,
        {seq: tx.prefixes.get(agent_id, seq) for seq in reasons},
        full,
        asked_at,
        tx.messages.list(agent_id, limit=10_000),
        None if conversation.prefix_seq is None else tx.prefixes.get(agent_id, conversation.prefix_seq),
        {node.seq: node for node in tx.nodes.list(agent_id, 0, limit=10_000)},
    )


def before_tail(request: ModelRequest) -> bytes:
    return canonical(replace(request, tail=""))


Check = Callable[[Played], None]


def it_fits(played: Played) -> None:
    """Tokens and reserve never exceed the window, as a real tokenizer counts them; summaries' requests neither."""
    assert played.talker.too_large == []


def it_is_legal(played: Played) -> None:
    """No plan splits a call from its result."""
    for request in played.talker.requests:
        check_legal(request.messages)


def it_can_be_rebuilt(played: Played) -> None:
    """Each request comes back from its recipe, and has the digest that was recorded before it was sent."""
    assert [digest_of(request) for request in played.talker.requests] == [
        digest for _, digest, _ in played.record.requests
    ]
    assert [digest_of(request) for request, _, _ in played.record.requests] == [
        digest for _, digest, _ in played.record.requests
    ]


def sent_bytes_stay_sent(played: Played) -> None:
    """A request begins with the one before it, but where the prefix was written anew, and that has a reason."""
    for (before, _, old), (after, _, new) in pairwise(played.record.requests):
        if old == new:
            assert before_tail(after).startswith(before_tail(before))
        else:
            assert played.record.reasons[new] in ("settings", "window", "cache_cold", "engine", "pays")


def each_rewrite_is_by_the_rule(played: Played) -> None:
    """A prefix is written anew only where the budget forces it, the cache has expired, a swap pays, or the agent
    changed; and the prefix says what is different."""
    record = played.record
    sent = {prefix_seq for _, _, prefix_seq in record.requests}
    for prefix in record.prefixes.values():
        used = zip(record.asked_at, record.requests, strict=True)
        before = [at for at, (_, _, prefix_seq) in used if prefix_seq < prefix.seq]
        match prefix.reason:
            case "first":
                assert prefix.seq == 0
            case "settings":
                # A setting that was changed and put back is no change. A prefix that is not sent yet is free to take
                # the summaries that are prepared.
                taken = {"messages", "summaries"} if prefix.seq - 1 not in sent else set()
                assert {change.what for change in prefix.changes} <= {"setting", "block"} | taken
            case "cache_cold":
                assert not before or prefix.created_at - before[-1] > COLD_AFTER
            case "pays":
                assert any(event.by == "swap" for _, event in record.full)
            case "engine":
                assert played.talker.world.engine != "paged"
            case _:
                assert prefix.reason == "window"
                assert any(event.tokens > event.budget_tokens for _, event in record.full) or played.edits
                assert prefix.changes or played.edits


def the_ledger_adds_up(played: Played) -> None:
    """It has every request and summary, each part's tokens and price, and every prefix that was written anew."""
    ledger, record = played.ledger, played.record
    assert len(ledger.requests) == len(record.requests)
    measured = [request for request in ledger.requests if request.measured]
    for request in ledger.requests:
        sizes = [part.cached_tokens + part.written_tokens + part.plain_tokens for part in request.parts]
        assert sum(sizes) == request.input_tokens
        assert min(min(part.tokens, part.plain_tokens, part.missed_tokens) for part in request.parts) >= 0
    assert len(measured) == (len(played.talker.usages) if played.talker.world.honest else 0)
    assert sum(request.input_tokens for request in measured) == sum(
        usage.input_tokens for usage in played.talker.usages if played.talker.world.honest
    )
    used = {prefix_seq for _, _, prefix_seq in record.requests}
    told = [rewrite.prefix_seq for request in ledger.requests for rewrite in request.rewrites]
    assert told == sorted(set(told))
    assert used <= set(told)
    assert {summary.handle for summary in ledger.summaries} == {f"node-{seq}" for seq in record.nodes}


def an_edit_is_in_the_next_request(played: Played) -> None:
    """In the memory section or as a delta; the last word on the block is the newest."""
    edits = [*played.edits, (len(played.talker.requests), "")]
    for (asked, text), (asked_next, _) in pairwise(edits):
        if asked < asked_next:  # else it was overwritten before a model could see it
            request = played.talker.requests[asked]
            told = [message.text for message in request.messages if message.kind == "memory_delta"]
            assert text in request.system or any(json.dumps(text, ensure_ascii=False) in delta for delta in told)


def everything_is_reachable(played: Played) -> None:
    """Every message is in view or behind handles, at most 2 + log2(n) hops away."""
    record = played.record
    if record.prefix is None:
        return
    hops: dict[int, int] = {}

    def open_node(node: SummaryNode, hop: int) -> None:
        if not node.children:
            for message in record.messages:
                if node.from_message_seq <= message.seq <= node.upto_message_seq:
                    hops.setdefault(message.seq, hop)
        for child in node.children:
            open_node(record.nodes[child], hop + 1)

    for seq in record.prefix.nodes:
        open_node(record.nodes[seq], 1)
    hidden = [message.seq for message in record.messages if message.seq < record.prefix.from_message_seq]
    assert set(hidden) <= set(hops)
    assert max(hops.values(), default=0) <= 2 + math.log2(max(1, len(record.messages)))


def nothing_is_compacted_twice(played: Played) -> None:
    """Each message leaves the view once, each node once, and every time the view shrinks."""
    nodes = played.record.nodes
    shown = list(played.record.prefix.nodes) if played.record.prefix else []
    for seq in shown:  # those in view, then what they stand for
        shown += nodes[seq].children
    assert len(shown) == len(set(shown))
    leaves = sorted((nodes[seq] for seq in shown if not nodes[seq].children), key=lambda leaf: leaf.from_message_seq)
    for before, after in pairwise(leaves):
        assert before.upto_message_seq < after.from_message_seq
    for compaction in played.record.compactions:
        assert compaction.merged or compaction.tokens_after < compaction.tokens_before


PROMISES: tuple[Check, ...] = (
    it_fits,
    it_is_legal,
    it_can_be_rebuilt,
    sent_bytes_stay_sent,
    each_rewrite_is_by_the_rule,
    the_ledger_adds_up,
    an_edit_is_in_the_next_request,
    everything_is_reachable,
    nothing_is_compacted_twice,
)


@pytest.mark.slow
@effort(few=12, many=2_000)
@given(worlds, histories)
async def test_the_context_keeps_its_promises(world: World, history: Sequence[Say | Outside]) -> None:
    """All of them, in every history."""
    played = await play(world, history)
    event(f"{world.engine} compactions: {min(3, len(played.record.compactions))}")
    event(f"floors: {min(1, played.floors)}")

    for promise in PROMISES:
        promise(played)


@functools.cache
def played_with_all_of_it() -> Played:
    """A small window, large results of all kinds, edits, and many turns: evictions, merges and stubs happen."""
    history: list[Say | Outside] = []
    for number in range(40):
        kind = KINDS[number % len(KINDS)]
        call = Answer("dump", kind, 300 * (number % 7) + (9_000 if number % 11 == 0 else 0), number)
        history.append(Say(kind, 200 + 40 * (number % 13), number, (call, Answer("remember", seed=number % 9), call)))
        if number % 3 == 0:
            history.append(Outside("edit", number % 5))
    return asyncio.run(play(World(9_000, ("dump", "core_memory_append"), "good", honest=True), history))


@pytest.mark.slow
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_history_that_needs_all_of_it(promise: Check) -> None:
    """Played once, and held against each promise."""
    played = played_with_all_of_it()

    promise(played)
    assert any(compaction.merged for compaction in played.record.compactions)
    assert len(played.record.compactions) > 10
