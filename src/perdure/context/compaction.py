"""The plan that makes a request fit: what leaves the view, and in which form it stays.

Pure: the same situation gives the same plan. A plan is carried out by the engine, and then it is asked again; each one
strictly lowers what is shown, so this ends, with a request that fits or with `IrreducibleFloor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile

from perdure.context.atoms import Atom, atoms
from perdure.context.budget import Certificate
from perdure.context.shown import row_tokens, stub_chars
from perdure.core.errors import IrreducibleFloor
from perdure.core.messages import Message
from perdure.core.nodes import SummaryNode
from perdure.core.ports import TokenCounter

__all__ = ["Evict", "Merge", "Plan", "Situation", "Stub", "plan", "summary_limit"]

KEPT = 0.4
"""Of the room for messages, what is still filled after an eviction. Each eviction makes the provider write what is kept
to its cache again, so few deep ones cost less than many shallow ones: with 0.7 input costs a fifth more."""

SUMMARY_SHARE = 1 / 48
"""Of the budget, what one summary may take: 125 tokens of a window of 8,000, the limit of 1,200 from 60,000 on."""
SUMMARY_LIMITS = (80, 1_200)

NODES_SHARE = 0.25
"""Of the room for messages, what all summaries may take before older ones are merged."""
NODES_PER_LEVEL = 6
MERGED = 4
"""With so many of one level in view, the oldest are merged into one of the next: so n messages are at most log4(n)
nodes deep."""

WORTH_TOKENS = 120
"""An eviction that frees less than this over its summary's own size is none."""

OVERSIZED = 0.5
"""Of the room for messages: a newcomer that is larger by itself is shown as a stub before others have to leave."""

LEAST_CHARS = 200
"""A stub shows at least so much."""


@dataclass(frozen=True, slots=True)
class Evict:
    """These atoms leave the view behind one new node. `pinned` are the rows among them and before that stay shown."""

    atoms: tuple[Atom, ...]
    from_seq: int
    """The first row that stays."""
    pinned: tuple[Message, ...]
    summary_tokens: int

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(message for atom in self.atoms for message in atom.messages)


@dataclass(frozen=True, slots=True)
class Merge:
    """These neighbouring nodes of one level leave the view behind one of the next level."""

    nodes: tuple[SummaryNode, ...]
    summary_tokens: int


@dataclass(frozen=True, slots=True)
class Stub:
    """Of these rows (row number -> characters) only so much is shown. `sent`: some of it was sent to a model before, so
    the prefix is written anew."""

    stubs: Mapping[int, int]
    sent: bool


Plan = Evict | Merge | Stub


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A request that is to be made, and what the plan is a function of.

    Args:
        certificate: what it would take as it is.
        nodes: the summary nodes in view, oldest first.
        pinned: rows shown before those that follow the prefix.
        rows: the rows that follow the prefix, whole, oldest first.
        run_seq: the run that is being served: its input stays in view.
        stubs: the rows of which only a part is shown.
        seen_upto: the newest row that a model has answered to in this run; -1: none. What it has not seen can't leave.
        sent_upto: the newest row that this run has sent to a model, answered or not.
        can_open: the model has the tools that open handles, so that texts may be cut.
    """

    certificate: Certificate
    nodes: tuple[SummaryNode, ...]
    pinned: tuple[Message, ...]
    rows: tuple[Message, ...]
    run_seq: int
    stubs: Mapping[int, int] = field(default_factory=dict)
    seen_upto: int = -1
    sent_upto: int = -1
    can_open: bool = True
    counter: TokenCounter

    def tokens_of(self, message: Message) -> int:
        return row_tokens(message, self.stubs, self.counter)

    @property
    def room_tokens(self) -> int:
        """What the budget leaves for summaries and messages."""
        fixed = ("tools", "system prompt", "memory blocks", "status")
        taken = sum(segment.tokens for segment in self.certificate.segments if segment.name in fixed)
        return max(0, self.certificate.budget_tokens - taken)


def plan(situation: Situation) -> Plan | None:
    """The next thing to do so that the request fits; None if it does.

    In this order: a newcomer that is too large by itself is cut; summaries that have become many are merged; the oldest
    atoms are evicted; what is left of the newest turn is cut, its tool results before its user's words.

    Raises: IrreducibleFloor.
    """
    if situation.certificate.fits:
        return None
    return (
        _cut(situation, list(_oversized(situation)))
        or _merge(situation)
        or _evict(situation)
        or _cut(situation, list(_newest_results(situation)))
        or _cut(situation, list(_input(situation)))
        or _merge(situation, forced=True)
        or _floor(situation)
    )


def summary_limit(budget_tokens: int) -> int:
    """How many tokens one summary may have."""
    low, high = SUMMARY_LIMITS
    return max(low, min(high, int(budget_tokens * SUMMARY_SHARE)))


def _evict(situation: Situation) -> Evict | None:
    """The oldest atoms, up to where what stays fills `KEPT` of the room; the run's input stays, and what no model has
    seen."""
    every = atoms(situation.rows)
    candidates = list(takewhile(lambda atom: _may_go(situation, atom), every[:-1]))
    stay = {message.seq for message in _input(situation)}
    limit = summary_limit(situation.certificate.budget_tokens)
    shown_tokens = sum(map(situation.tokens_of, (*situation.pinned, *situation.rows)))
    # The estimate may be known to be too high; then less has to go than it says.
    target = situation.room_tokens * KEPT * _too_high(situation.certificate) - limit
    cut, freed = 0, _left_behind(situation, stay)
    best: tuple[int, int] | None = None  # how many atoms, and what they free
    for cut, atom in enumerate(candidates, 1):
        freed += sum(situation.tokens_of(message) for message in atom.messages if message.seq not in stay)
        best = (cut, freed)
        if shown_tokens - freed <= target:
            break
    if best is None:
        return _unpin(situation, stay) if freed else None
    cut, freed = _to_a_turn(situation, every[: len(candidates) + 1], *best, stay=stay)
    if freed < limit + WORTH_TOKENS:
        limit = freed - WORTH_TOKENS
        if limit < SUMMARY_LIMITS[0]:
            return None
    gone = candidates[:cut]
    pinned = [message for message in (*situation.pinned, *_messages(gone)) if message.seq in stay]
    return Evict(tuple(gone), situation.rows[len(_messages(gone))].seq, tuple(pinned), limit)


def _unpin(situation: Situation, stay: set[int]) -> Evict:
    """Nothing leaves but the input of an earlier run, for which a node stands already."""
    pinned = tuple(message for message in situation.pinned if message.seq in stay)
    return Evict((), situation.rows[0].seq, pinned, 0)


def _may_go(situation: Situation, atom: Atom) -> bool:
    return atom.run_seq != situation.run_seq or atom.upto_seq <= situation.seen_upto


def _to_a_turn(
    situation: Situation, following: Sequence[Atom], cut: int, freed: int, *, stay: set[int]
) -> tuple[int, int]:
    """The cut moved on to where the next run begins, if that is near: a view that starts with a question reads
    better."""
    further, slack = freed, situation.room_tokens * KEPT / 4
    for later in range(cut, len(following)):
        atom = following[later]
        if atom.run_seq != following[later - 1].run_seq and atom.messages[0].role == "user":
            return later, further
        further += sum(situation.tokens_of(message) for message in atom.messages if message.seq not in stay)
        if further - freed > slack:
            break
    return cut, freed


def _left_behind(situation: Situation, stay: set[int]) -> int:
    """What goes with any eviction: the input of an earlier run, which stayed as long as that run went on."""
    return sum(situation.tokens_of(message) for message in situation.pinned if message.seq not in stay)


def _merge(situation: Situation, *, forced: bool = False) -> Merge | None:
    """The oldest nodes of the lowest level that has too many; or, when all take too much room, those of the level that
    has most."""
    levels = [tuple(group) for _, group in groupby(situation.nodes, key=lambda node: node.level)]
    limit = summary_limit(situation.certificate.budget_tokens)
    for nodes in reversed(levels):
        if len(nodes) >= NODES_PER_LEVEL:
            return _merged(nodes[:MERGED], limit)
    summaries = sum(segment.tokens for segment in situation.certificate.segments if segment.name == "summary")
    if not forced and summaries <= situation.room_tokens * NODES_SHARE:
        return None
    several = max(levels, key=len, default=())
    if len(several) < 2:
        # All of different levels: the newest three. Each level then has more messages than the three below it
        # together, so the tree still grows deeper by logarithm only.
        several = situation.nodes[-3:]
    return _merged(several, limit) if len(several) > 1 else None


def _merged(nodes: tuple[SummaryNode, ...], limit: int) -> Merge:
    """Smaller than they are together, whatever they are."""
    return Merge(nodes, min(limit, max(40, sum(node.tokens for node in nodes) * 3 // 4)))


def _cut(situation: Situation, rows: Sequence[Message]) -> Stub | None:
    """The largest of these rows with less of it shown, so much less as is needed; None if that can't help."""
    if not situation.can_open:
        return None
    over = situation.certificate.over_tokens
    for message in sorted(rows, key=lambda message: (-situation.tokens_of(message), message.seq)):
        tokens = situation.tokens_of(message)
        whole = min(situation.stubs.get(message.seq, stub_chars(message)), stub_chars(message))
        wanted = max(0, tokens - over - WORTH_TOKENS)
        # A characters' share of the tokens is a guess, so at least a quarter goes, and the plan is made again.
        chars = max(LEAST_CHARS, min(whole * 3 // 4, whole * wanted // max(1, tokens)))
        stubs = {**situation.stubs, message.seq: chars}
        if chars < whole and row_tokens(message, stubs, situation.counter) < tokens:
            return Stub(stubs, sent=message.seq <= situation.sent_upto)
    return None


def _oversized(situation: Situation) -> Iterator[Message]:
    """Newcomers that no model has seen, and that would take more than their share of the room."""
    most = situation.room_tokens * OVERSIZED
    for message in (*_newest_results(situation), *_input(situation)):
        if message.seq > situation.sent_upto and situation.tokens_of(message) > most:
            yield message


def _newest_results(situation: Situation) -> Iterator[Message]:
    """The results that no model has seen."""
    for message in situation.rows:
        if message.role == "tool" and message.run_seq == situation.run_seq and message.seq > situation.seen_upto:
            yield message


def _input(situation: Situation) -> Iterator[Message]:
    """What the run was asked: its user's words."""
    for message in (*situation.pinned, *situation.rows):
        if message.run_seq == situation.run_seq and message.role == "user" and message.kind == "message":
            yield message


def _messages(group: Sequence[Atom]) -> list[Message]:
    return [message for atom in group for message in atom.messages]


def _too_high(certificate: Certificate) -> float:
    """Estimated tokens for each that the request is certified to take; below 1 where the estimate is too low."""
    return certificate.estimated_tokens / max(1, certificate.tokens)


def _floor(situation: Situation) -> Plan:
    certificate = situation.certificate
    raise IrreducibleFloor(
        reason="floor_exceeds_target" if situation.nodes or situation.stubs else "no_candidate",
        sizes={segment.name: segment.tokens for segment in certificate.segments},
        window_tokens=certificate.window_tokens,
        reserve_tokens=certificate.reserve_tokens,
        refused_tokens=certificate.estimated_tokens - certificate.overcount if certificate.factor > 1 else 0,
    )
