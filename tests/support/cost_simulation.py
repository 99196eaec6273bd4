"""What conversations cost, simulated over the product's own plans: no model, no store; prices as providers charge."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from perdure.context.sections.stubs import row_tokens
from perdure.context.window.budget import Certificate, Segment
from perdure.context.window.leaves import (
    COLD_AFTER,
    OUTPUT_PRICE,
    READ_PRICE,
    WRITE_PRICE,
    expected_calls,
    is_due,
    next_preparation,
    swap_reason,
)
from perdure.context.window.plan import (
    FIXED,
    KEEP_SHARE,
    NODE_OVERHEAD,
    SECTION_OVERHEAD,
    Evict,
    Merge,
    Plan,
    Situation,
    Stub,
    plan,
    plan_unsent,
    swap,
)
from perdure.core.conversations import SummarySettings
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message, Role, Text, ToolCall, ToolResult
from perdure.core.nodes import SummaryNode

STATUS_TOKENS, INSTRUCTION_TOKENS = 150, 400
AT_ONCE_MAX = 16  # as the engine prepares after one run
START = datetime(2026, 11, 20, tzinfo=UTC)
AGENT = AgentId("agent-1")

Policy = Literal["product", "when full", "at 75 %"]


class LengthCounter:
    """One token for each character."""

    def count(self, text: str) -> int:
        return len(text)

    def at_least(self, text: str) -> int:
        return len(text)


@dataclass(frozen=True)
class Turn:
    """One run: a pause, a user's message, and the model's answers, each with the sizes of its tools' results. The last
    answer has none."""

    pause_s: float
    input_tokens: int
    answers: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Trace:
    window_tokens: int
    tools_tokens: int
    system_tokens: int
    turns: tuple[Turn, ...]


ORDINARY_GRAINS, LARGE_GRAINS = (0.002, 0.005, 0.01, 0.03), (0.05, 0.2, 0.5)
"""The mean size of a text, as a share of the room for messages."""


def random_trace(seed: int, *, grains: Sequence[float] = ORDINARY_GRAINS, calls_most: int = 220) -> Trace:
    """A conversation: chatting, working with tools, or both; short or several windows long; with or without pauses."""
    rng = random.Random(seed)
    window = rng.choice([8_000, 16_000, 32_000, 64_000, 128_000, 200_000])
    room = window * 3 // 4
    tools_share = rng.choice([0.0, 0.2, 0.6, 0.9])
    calls_max = rng.choice([2, 5, 12, 25])
    pause_share = rng.choice([0.0, 0.0, 0.05, 0.3])
    grain = rng.choice(grains)
    whole = room * rng.choice([0.5, 0.9, 1.2, 2.0, 4.0, 7.0])

    def size(scale: float = 1.0) -> int:
        return max(5, int(rng.expovariate(1 / (grain * room * scale))))

    turns: list[Turn] = []
    spent = 0
    while spent < whole and sum(len(turn.answers) for turn in turns) < calls_most:
        count = rng.randrange(1, calls_max + 1) if rng.random() < tools_share else 0
        answers = [(size(0.3), (size(2),) * rng.choice([1, 1, 1, 2])) for _ in range(count)]
        pause = rng.uniform(3_700, 90_000) if rng.random() < pause_share else rng.uniform(5, 900)
        turns.append(Turn(pause, size(), (*answers, (size(), ()))))
        spent += turns[-1].input_tokens + sum(answer + sum(results) for answer, results in turns[-1].answers)
    return Trace(window, rng.randrange(300, window // 8), rng.randrange(300, window // 8), tuple(turns))


@dataclass
class Bill:
    """What a trace cost, in plain input tokens."""

    cached: float = 0.0
    written: float = 0.0
    plain: float = 0.0
    answered: float = 0.0
    summaries: float = 0.0
    prefix_tokens: int = 0
    rewrites: dict[str, int] = field(default_factory=dict)
    waits: int = 0
    """How often a run waited for a summary."""

    @property
    def total(self) -> float:
        return self.cached + self.written + self.plain + self.answered + self.summaries

    @property
    def prefix_write(self) -> float:
        """The price of writing the largest prefix to the cache."""
        return self.prefix_tokens * WRITE_PRICE


def simulate(trace: Trace, policy: Policy) -> Bill:
    """What the trace costs under a policy."""
    simulation = Simulation(trace, policy)
    for turn in trace.turns:
        simulation.run(turn)
    return simulation.bill


class Simulation:
    """The state of one conversation under one policy."""

    def __init__(self, trace: Trace, policy: Policy) -> None:
        self.trace, self.policy, self.bill = trace, policy, Bill()
        self.now = START
        self.rows: list[Message] = []
        self.pinned: tuple[Message, ...] = ()
        self.nodes: tuple[SummaryNode, ...] = ()
        self.prepared: list[SummaryNode] = []
        self.stubs: dict[int, int] = {}
        self.prefix = self.next_seq = self.next_node = 0
        self.run_seq = -1
        self.seen_upto = self.sent_upto = -1
        self.calls: list[int] = []  # the run of each call, newest first
        self.cache: list[tuple[object, int]] = []
        self.used_at: datetime | None = None
        self.settings = SummarySettings(background=policy == "product")

    def run(self, turn: Turn) -> None:
        """One run, and what is prepared after it."""
        self.now += timedelta(seconds=turn.pause_s)
        self.run_seq += 1
        self.seen_upto = self.sent_upto = -1
        self._add("user", (Text("u" * turn.input_tokens),))
        for index, (answer, results) in enumerate(turn.answers):
            self._make_room(is_first=index == 0)
            self._call()
            self.now += timedelta(seconds=10)
            calls = tuple(ToolCall(f"call-{self.next_seq}-{n}", "work", "{}") for n in range(len(results)))
            self._add("assistant", (Text("a" * answer), *calls))
            self.bill.answered += answer * OUTPUT_PRICE
            for call, size in zip(calls, results, strict=True):
                self._add("tool", (ToolResult(call.call_id, "work", "r" * size),))
        for _ in range(AT_ONCE_MAX if self.policy == "product" else 0):
            situation = replace(self.situation(), run_seq=-1, seen_upto=-1, sent_upto=-1)
            removal = next_preparation(situation) if is_due(situation) else None
            if removal is None:
                break
            self.prepared.append(self._summarise(removal))

    def _add(self, role: Role, parts: tuple[Text | ToolCall | ToolResult, ...]) -> None:
        message = Message(
            id=MessageId(f"message-{self.next_seq}"),
            agent_id=AGENT,
            seq=self.next_seq,
            conversation_seq=0,
            role=role,
            parts=parts,
            run_seq=self.run_seq,
            tokens=10 + sum(len(part.text) for part in parts if not isinstance(part, ToolCall)),
            created_at=self.now,
            occurred_at=self.now,
        )
        self.rows.append(message)
        self.next_seq += 1

    def _make_room(self, *, is_first: bool) -> None:
        """Carry out plans until the request fits; then the early swap of the product."""
        if self.policy == "at 75 %":
            window = self.trace.window_tokens
            early = int(0.75 * (window - self._reserve)) + self._reserve
            self._fit(window_tokens=early, keep_share=KEEP_SHARE / 0.75)
        before = self.prefix
        self._fit(window_tokens=self.trace.window_tokens)
        if self.policy != "product":
            return
        if self.prefix != before:
            while (free := plan_unsent(self.situation())) is not None:
                self.carry_out(free, "free")
        if not is_first:
            return
        situation = self.situation()
        filled = self.settings.context_threshold * situation.certificate.budget_tokens
        if situation.certificate.tokens < filled or (found := swap(situation)) is None:
            return
        removed = sum(map(situation.tokens_of, found.messages)) - found.summary_tokens
        behind = sum(part.tokens for part in situation.certificate.segments if part.name not in FIXED)
        reason = swap_reason(
            idle=None if self.used_at is None else self.now - self.used_at,
            removed=removed,
            kept=behind - removed,
            calls=expected_calls(self.calls),
        )
        if reason is not None:
            self.carry_out(found, reason)

    def _fit(self, *, window_tokens: int, keep_share: float = KEEP_SHARE) -> None:
        while (found := plan(self.situation(window_tokens, keep_share))) is not None:
            self.carry_out(found, "window")

    @property
    def _reserve(self) -> int:
        return min(8_000, self.trace.window_tokens // 4)

    def situation(self, window_tokens: int | None = None, keep_share: float = KEEP_SHARE) -> Situation:
        counter = LengthCounter()
        rows = [row_tokens(row, self.stubs, counter) for row in (*self.pinned, *self.rows)]
        certificate = Certificate(
            window_tokens=window_tokens or self.trace.window_tokens,
            reserve_tokens=self._reserve,
            segments=(
                Segment("tools", self.trace.tools_tokens),
                Segment("system prompt", self.trace.system_tokens),
                Segment("summary", self._summary_tokens()),
                Segment("messages", sum(rows)),
                Segment("status", STATUS_TOKENS),
            ),
        )
        return Situation(
            certificate=certificate,
            nodes=self.nodes,
            pinned=self.pinned,
            rows=tuple(self.rows),
            run_seq=self.run_seq,
            stubs=self.stubs,
            seen_upto=self.seen_upto,
            sent_upto=self.sent_upto,
            keep_share=keep_share,
            prepared=tuple(self.prepared),
            summaries=self.settings,
            counter=counter,
        )

    def _summary_tokens(self) -> int:
        return SECTION_OVERHEAD + sum(node.tokens + NODE_OVERHEAD for node in self.nodes) if self.nodes else 0

    def carry_out(self, found: Plan, reason: str) -> None:
        """Change the view as the plan says, with a summary if one is needed."""
        is_new = not isinstance(found, Stub) or found.sent
        self.prefix += is_new
        if is_new:
            self.bill.rewrites[reason] = self.bill.rewrites.get(reason, 0) + 1
        match found:
            case Stub(stubs=stubs):
                self.stubs = dict(stubs)
                return
            case Evict():
                self.bill.waits += bool(found.atoms and not found.prepared)
                new = found.prepared or ((self._summarise(found),) if found.atoms else ())
                self.nodes = (*self.nodes, *new)
                self.pinned = found.pinned
                self.rows = [row for row in self.rows if row.seq >= found.from_seq]
            case Merge():
                self.bill.waits += not found.prepared
                new = found.prepared or (self._summarise(found),)
                merged = {node.seq for node in found.nodes}
                place = min(index for index, node in enumerate(self.nodes) if node.seq in merged)
                left = [node for node in self.nodes if node.seq not in merged]
                self.nodes = (*left[:place], *new, *left[place:])
        taken = {node.seq for node in new}
        first = self.rows[0].seq if self.rows else self.next_seq
        self.prepared = [
            node for node in self.prepared if node.seq not in taken and (node.level or node.from_message_seq >= first)
        ]

    def _summarise(self, removal: Evict | Merge) -> SummaryNode:
        """Pay for a summary that takes three quarters of its limit."""
        tokens = max(1, removal.summary_tokens * 3 // 4)
        if isinstance(removal, Merge):
            span = removal.nodes[0].from_message_seq, removal.nodes[-1].upto_message_seq
            source = sum(node.tokens for node in removal.nodes)
            level, children = removal.level, removal.children
        else:
            span = removal.messages[0].seq, removal.messages[-1].seq
            source = sum(message.tokens for message in removal.messages)
            source += self.nodes[-1].tokens if self.nodes else 0
            level, children = 0, ()
        source = min(source, int(0.7 * self.trace.window_tokens))
        self.bill.summaries += INSTRUCTION_TOKENS + source + tokens * OUTPUT_PRICE
        self.next_node += 1
        return SummaryNode(
            agent_id=AGENT,
            conversation_seq=0,
            seq=self.next_node,
            level=level,
            from_message_seq=span[0],
            upto_message_seq=span[1],
            children=children,
            message_count=1,
            since=self.now,
            until=self.now,
            text="s" * tokens,
            tokens=tokens,
            made_by="model",
            created_at=self.now,
        )

    def _call(self) -> None:
        """Pay for one request: what it shares with the last one is read from the cache, unless that has expired."""
        parts = self._parts()
        shared = 0
        if self.used_at is not None and self.now - self.used_at <= COLD_AFTER:
            for (old, tokens), (new, _) in zip(self.cache, parts, strict=False):
                if old != new:
                    break
                shared += tokens
        whole = sum(tokens for _, tokens in parts)
        self.bill.cached += shared * READ_PRICE
        self.bill.written += (whole - shared) * WRITE_PRICE
        self.bill.plain += STATUS_TOKENS
        prefix = self.trace.tools_tokens + self.trace.system_tokens + self._summary_tokens()
        self.bill.prefix_tokens = max(self.bill.prefix_tokens, prefix)
        self.cache, self.used_at = parts, self.now
        self.calls.insert(0, self.run_seq)
        self.seen_upto = self.sent_upto = self.rows[-1].seq

    def _parts(self) -> list[tuple[object, int]]:
        """The parts of the request, each with its tokens. A new prefix has a new time and counts in its system text."""
        counter = LengthCounter()
        parts: list[tuple[object, int]] = [
            ("tools", self.trace.tools_tokens),
            (("system", self.prefix), self.trace.system_tokens),
            (("summary", self.prefix), self._summary_tokens()),
        ]
        rows = (*self.pinned, *self.rows)
        return parts + [((row.seq, self.stubs.get(row.seq)), row_tokens(row, self.stubs, counter)) for row in rows]


def total(bills: Sequence[Bill]) -> float:
    """The sum of the bills."""
    return sum(bill.total for bill in bills)
