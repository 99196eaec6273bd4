"""The plan that makes a request fit: what leaves the view, and in which form it stays.

Pure: the same situation gives the same plan. A plan is carried out by the engine, and then it is asked again; each one
strictly lowers what is shown, so this ends, with a request that fits or with `IrreducibleFloor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from typing import NoReturn

from perdure.context.retrieval.stubs import row_tokens, stub_chars
from perdure.context.window.atoms import Atom, atoms
from perdure.context.window.budget import Certificate
from perdure.core.errors import IrreducibleFloor
from perdure.core.messages import Message
from perdure.core.nodes import SummaryNode
from perdure.core.ports import TokenCounter

__all__ = ["Evict", "Merge", "Plan", "Situation", "Stub", "plan", "summary_limit"]

KEPT = 0.4
"""Of the room for messages that may leave, what is still filled after an eviction. Each eviction makes the provider
write what is kept to its cache again, so few deep ones cost less than many shallow ones."""

SUMMARY_SHARE = 1 / 48
"""Of the budget, what one summary may take: 125 tokens of a window of 8,000, the limit of 1,200 from 60,000 on."""
SUMMARY_LIMITS = (80, 1_200)
LEAST_SUMMARY = 40
"""Where there is hardly any room, a summary is cut to this, by code."""
NODE_OVERHEAD, SECTION_OVERHEAD = 50, 90
"""About what a node, and the section they all stand in, take besides the texts."""

NODES_SHARE = 0.25
"""Of the room for messages, what all summaries may take before older ones are merged."""
NODES_PER_LEVEL = 6
MERGED = 4
"""With so many of one level in view, the oldest are merged into one of the next: so n messages are at most log4(n)
nodes deep."""

WORTH_TOKENS = 120
"""An eviction that frees less than this over its summary's own size is none, as long as anything else can go."""

OVERSIZED = 0.5
"""Of the room for messages: a newcomer that is larger by itself is shown in part, if not so much can be freed."""

MOST = 0.75
"""And never more than that, so that there is room to go on."""

STUB_TOKENS = 60
"""About what a stub takes that shows nothing of its text."""


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
    """These neighbouring nodes leave the view behind one that stands for all of them.

    Nodes of one level become the children of one of the next. Of different levels, the smaller ones join the children
    of the largest, which grows no deeper by it; a single one is only made shorter.
    """

    nodes: tuple[SummaryNode, ...]
    summary_tokens: int

    @property
    def level(self) -> int:
        levels = [node.level for node in self.nodes]
        return max(levels) + (len(levels) > 1 and (len(set(levels)) == 1 or max(levels) == 0))

    @property
    def children(self) -> tuple[int, ...]:
        level = self.level
        return tuple(seq for node in self.nodes for seq in (node.children if node.level == level else (node.seq,)))


@dataclass(frozen=True, slots=True)
class Stub:
    """Of these rows (row number -> characters) only so much is shown. `sent`: some of it was sent to a model before, so
    the prefix is written anew."""

    stubs: Mapping[int, int]
    sent: bool


Plan = Evict | Merge | Stub

FIXED = ("tools", "system prompt", "memory blocks", "files", "status")
"""The segments that no plan can make smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A request that is to be made, and what the plan is a function of.

    Args:
        certificate: what it would take as it is.
        nodes: the summary nodes in view, oldest first.
        pinned: rows shown before those that follow the prefix.
        rows: the rows that follow the prefix, whole, oldest first.
        run_seq: the run that is being served: its input stays in view.
        turn_from: where the request begins that this run serves, if runs before it did so too; their input stays as
            well.
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
    turn_from: int | None = None
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
        taken = sum(segment.tokens for segment in self.certificate.segments if segment.name in FIXED)
        return max(0, self.certificate.budget_tokens - taken)


def plan(situation: Situation) -> Plan | None:
    """The next thing to do so that the request fits; None if it does, or may: where only a correction of the estimate
    says that it does not, and nothing more can go, its provider has the last word.

    In this order: a newcomer that is too large by itself is cut; summaries that have become many are merged; the oldest
    atoms are evicted; what is left of the newest turn is cut, its tool results and what its model said beside calls
    before its user's words; at last summaries are joined and shortened, whatever is lost of them.

    Raises: IrreducibleFloor: before anything else is done, where all of that could not be enough.
    """
    certificate = situation.certificate
    if certificate.fits:
        return None
    if _least(situation) > certificate.budget_tokens:
        _raise_floor(situation)
    found = (
        _cut_oversized(situation)
        or _merge(situation)
        or _evict(situation)
        or _cut(situation, [*_newest_results(situation), *_answers(situation), *_input_cut_before(situation)])
        or _cut(situation, list(_input(situation)))
        or _join(situation)
        or _evict(situation, least=LEAST_SUMMARY)
    )
    if found is None and (certificate.factor > 1 or certificate.estimated_tokens > certificate.budget_tokens):
        _raise_floor(situation)
    return found


def _least(situation: Situation) -> float:
    """What is left when all has gone that can, by the most hopeful reading of the estimate."""
    certificate = situation.certificate
    taken = sum(segment.tokens for segment in certificate.segments if segment.name in FIXED)
    rows = 0
    for message in _staying(situation):
        tokens = situation.tokens_of(message)
        rows += min(tokens, STUB_TOKENS) if situation.can_open and stub_chars(message) else tokens
    return (taken + rows - max(0, certificate.overcount)) * certificate.factor


def summary_limit(budget_tokens: int) -> int:
    """How many tokens one summary may have."""
    low, high = SUMMARY_LIMITS
    return max(low, min(high, int(budget_tokens * SUMMARY_SHARE)))


def _evict(situation: Situation, *, least: int = 0) -> Evict | None:
    """The oldest atoms, up to where what stays of those that may go fills `KEPT` of the room that is left for them; the
    run's input stays, and what no model has seen.

    Args:
        least: how small the summary may be, when any gain is welcome; 0: as it should be, for a gain that is worth it.
    """
    every = atoms(situation.rows)
    candidates = list(takewhile(lambda atom: _may_go(situation, atom), every[:-1]))
    stay = {message.seq for message in _input(situation)}
    limit = least or summary_limit(situation.certificate.budget_tokens)
    shown_tokens = sum(map(situation.tokens_of, (*situation.pinned, *situation.rows)))
    staying = sum(map(situation.tokens_of, _staying(situation)))
    # The estimate may be known to be too high; then less has to go than it says.
    room = situation.room_tokens * _too_high(situation.certificate)
    target = staying + max(0, room - staying) * KEPT - limit
    freed = _left_behind(situation, stay)
    best: tuple[int, int] | None = None  # how many atoms, and what they free
    for cut, atom in enumerate(candidates, 1):
        freed += sum(situation.tokens_of(message) for message in atom.messages if message.seq not in stay)
        best = (cut, freed)
        if shown_tokens - freed <= target:
            break
    if best is None:
        return _unpin(situation, stay) if freed else None
    cut, freed = _to_a_turn(situation, every[: len(candidates) + 1], *best, stay=stay)
    worth = NODE_OVERHEAD + (SECTION_OVERHEAD if not situation.nodes else 0) if least else WORTH_TOKENS
    if freed < limit + worth:
        limit = freed - worth
        if limit < (least or SUMMARY_LIMITS[0]):
            return None
    gone = candidates[:cut]
    pinned = [message for message in (*situation.pinned, *_messages(gone)) if message.seq in stay]
    return Evict(tuple(gone), situation.rows[len(_messages(gone))].seq, tuple(pinned), limit)


def _unpin(situation: Situation, stay: set[int]) -> Evict | None:
    """Nothing leaves but the input of an earlier run, for which a node stands already."""
    if not situation.rows:
        return None
    pinned = tuple(message for message in situation.pinned if message.seq in stay)
    return Evict((), situation.rows[0].seq, pinned, 0)


def _may_go(situation: Situation, atom: Atom) -> bool:
    # An answer of an earlier run may have results of this one: what a person approved, or the caller brought back.
    return atom.upto_seq <= situation.seen_upto or all(
        message.run_seq != situation.run_seq for message in atom.messages
    )


def _staying(situation: Situation) -> list[Message]:
    """The rows that no eviction can take away: the run's input, what no model has seen, and the newest atom."""
    may_go, left = _parted(situation)
    stay = {message.seq for message in _input(situation)}
    return [message for message in (*situation.pinned, *_messages(may_go)) if message.seq in stay] + _messages(left)


def _parted(situation: Situation) -> tuple[Sequence[Atom], Sequence[Atom]]:
    """The atoms that may leave, oldest first, and those that can't yet."""
    every = atoms(situation.rows)
    may_go = list(takewhile(lambda atom: _may_go(situation, atom), every[:-1]))
    return may_go, every[len(may_go) :]


def _to_a_turn(
    situation: Situation, following: Sequence[Atom], cut: int, freed: int, *, stay: set[int]
) -> tuple[int, int]:
    """The cut moved on to where the next run begins, if that is near: a view that starts with a question reads
    better."""
    further, slack = freed, situation.room_tokens * KEPT / 2
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


def _merge(situation: Situation) -> Merge | None:
    """The oldest nodes of the lowest level that has too many; or, when all take too much room, those of the level that
    has most, or the newest three of different ones."""
    levels = [tuple(group) for _, group in groupby(situation.nodes, key=lambda node: node.level)]
    limit = summary_limit(situation.certificate.budget_tokens)
    for nodes in reversed(levels):
        if len(nodes) >= NODES_PER_LEVEL:
            return _merged(nodes[:MERGED], limit)
    summaries = sum(segment.tokens for segment in situation.certificate.segments if segment.name == "summary")
    if summaries <= situation.room_tokens * NODES_SHARE:
        return None
    several = max(levels, key=len, default=())
    if len(several) < 2:
        several = situation.nodes[-3:]
    return _merged(several, limit) if len(several) > 1 else None


def _merged(nodes: tuple[SummaryNode, ...], limit: int) -> Merge:
    """Smaller than they are together, whatever they are."""
    return Merge(nodes, min(limit, max(LEAST_SUMMARY, sum(node.tokens for node in nodes) * 3 // 4)))


def _join(situation: Situation) -> Merge | None:
    """All summaries as one, or the only one shorter: where nothing else can go any more."""
    nodes = situation.nodes
    if len(nodes) > 1 or (nodes and nodes[0].tokens > LEAST_SUMMARY + NODE_OVERHEAD // 2):
        return Merge(nodes, LEAST_SUMMARY)
    return None


def _cut_oversized(situation: Situation) -> Stub | None:
    """Newcomers that no model has seen, each cut to its share of the room, or to more if that much can be freed."""
    room = situation.room_tokens * _too_high(situation.certificate)
    newcomers = [
        message
        for message in (*_newest_results(situation), *_answers(situation), *_input(situation))
        if message.seq > situation.sent_upto
    ]
    rows = {message.seq: situation.tokens_of(message) for message in newcomers}
    staying = sum(map(situation.tokens_of, _staying(situation)))
    others = sum(map(situation.tokens_of, (*situation.pinned, *situation.rows))) - staying
    beside = staying - sum(rows.values()) + min(others, room * KEPT)
    if situation.nodes or others:
        beside += SECTION_OVERHEAD + NODE_OVERHEAD + summary_limit(situation.certificate.budget_tokens)
    most = max(room * OVERSIZED, min((room - beside) * 0.9, room * MOST))
    return _stub(situation, newcomers, sum(rows.values()) - most)


def _cut(situation: Situation, rows: Sequence[Message]) -> Stub | None:
    """The largest of these rows with less of them shown, so much less as is needed; None if that can't help."""
    over = situation.certificate.over_tokens * max(1.0, _too_high(situation.certificate))
    return _stub(situation, rows, over + WORTH_TOKENS)


def _stub(situation: Situation, rows: Sequence[Message], less: float) -> Stub | None:
    """These rows with `less` tokens shown of them together, the largest cut to one size; None if nothing is won."""
    if not situation.can_open or less <= 0:
        return None
    tokens = {message.seq: situation.tokens_of(message) for message in rows if stub_chars(message)}
    level = _level(sorted(tokens.values(), reverse=True), less)
    stubs = dict(situation.stubs)
    for message in rows:
        size = tokens.get(message.seq, 0)
        if size <= max(level, STUB_TOKENS):
            continue
        whole = min(situation.stubs.get(message.seq, stub_chars(message)), stub_chars(message))
        # A characters' share of the tokens is a guess, so a tenth more goes; the plan is made again in any case.
        chars = int(whole * max(0.0, level - STUB_TOKENS) / size * 0.9)
        if row_tokens(message, {**stubs, message.seq: chars}, situation.counter) < size:
            stubs[message.seq] = chars
    changed = [seq for seq, chars in stubs.items() if situation.stubs.get(seq) != chars]
    return Stub(stubs, sent=min(changed) <= situation.sent_upto) if changed else None


def _level(sizes: Sequence[int], less: float) -> float:
    """The size to which the largest have to come down so that all together are `less` smaller; 0 if they can't be."""
    above = 0
    for count, size in enumerate(sizes, 1):
        above += size
        level = (above - less) / count
        if level >= (sizes[count] if count < len(sizes) else 0):
            return level
    return 0.0


def _newest_results(situation: Situation) -> Iterator[Message]:
    """The results that no model has seen."""
    for message in situation.rows:
        if message.role == "tool" and message.run_seq == situation.run_seq and message.seq > situation.seen_upto:
            yield message


def _answers(situation: Situation) -> Iterator[Message]:
    """What the model said or thought beside calls, as long as these can't leave."""
    return (message for message in _messages(_parted(situation)[1]) if message.calls)


def _input(situation: Situation) -> Iterator[Message]:
    """What the run was asked: its user's words."""
    for message in (*situation.pinned, *situation.rows):
        of_it = message.run_seq == situation.run_seq or (
            situation.turn_from is not None and message.seq >= situation.turn_from
        )
        if of_it and message.role == "user" and message.kind == "message":
            yield message


def _input_cut_before(situation: Situation) -> Iterator[Message]:
    """Where a user's words are shown in part already, they are no dearer than a result."""
    return (message for message in _input(situation) if message.seq in situation.stubs)


def _messages(group: Sequence[Atom]) -> list[Message]:
    return [message for atom in group for message in atom.messages]


def _too_high(certificate: Certificate) -> float:
    """Estimated tokens for each that the request is certified to take; below 1 where the estimate is too low."""
    return certificate.estimated_tokens / max(1, certificate.tokens)


def _raise_floor(situation: Situation) -> NoReturn:
    certificate = situation.certificate
    raise IrreducibleFloor(
        reason="no_candidate" if _least(situation) <= certificate.budget_tokens else "floor_exceeds_target",
        sizes={segment.name: segment.tokens for segment in certificate.segments},
        window_tokens=certificate.window_tokens,
        reserve_tokens=certificate.reserve_tokens,
        refused_tokens=certificate.estimated_tokens - certificate.overcount if certificate.factor > 1 else 0,
    )
