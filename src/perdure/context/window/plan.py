"""Plan how a request is made to fit: which rows leave the view, and which are cut.

Pure: the same situation gives the same plan. The engine carries a plan out and plans again. Each plan strictly lowers
the size of the view, so this ends, with a request that fits or with `IrreducibleFloor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from typing import ClassVar, Literal, NoReturn

from perdure.context.sections.stubs import row_tokens, stub_chars
from perdure.context.window.atoms import Atom, atoms
from perdure.context.window.budget import Certificate
from perdure.core.conversations import CompactionSettings, SummarySettings
from perdure.core.errors import IrreducibleFloor
from perdure.core.messages import Message
from perdure.core.nodes import SummaryNode
from perdure.core.ports import TokenCounter

KEEP_SHARE = 0.4
"""How much of the room for messages that may leave is full after an eviction. The provider must then cache the rest
again, so few deep evictions cost less than many shallow ones."""

SUMMARY_SHARE = 1 / 48
"""The share of the budget for one summary: 125 tokens of a window of 8,000, the limit of 2,400 from 120,000 on."""
SUMMARY_LIMITS = (80, 2_400)
LEAST_SUMMARY = 40
"""The size to which code cuts a summary when there is hardly any room."""
NODE_OVERHEAD, SECTION_OVERHEAD = 50, 90
"""The estimated tokens of a node, and of the section of all nodes, beside their texts."""

NODES_SHARE = 0.25
"""The share of the room for messages that summaries may take before older ones are merged."""
NODES_SPARE = 2
"""How many nodes of a level stay when the oldest `condensed_min_fanout` become one of the next: so n messages are at
most log4(n) nodes deep."""

WORTH_TOKENS = 120
"""The least that an eviction frees beyond its summary's size, as long as anything else can go."""

OVERSIZE_SHARE = 0.5
"""The share of the room above which a new row is cut, unless enough can be freed."""

CUT_SHARE_MAX = 0.75
"""The largest share of the room for a new row."""

STUB_TOKENS = 60
"""The estimated tokens of a stub that shows no text."""


@dataclass(frozen=True, slots=True)
class Evict:
    """A new node replaces these atoms in the view.

    Args:
        from_seq: the first row that stays.
        pinned: the rows among and before the atoms that stay visible.
        prepared: nodes that stand for the atoms already, in place of a new one.
        absorbed: the newest nodes in view, if the new one stands for what they do, too.
        text: what the new node says; None: a model writes it.
    """

    atoms: tuple[Atom, ...]
    from_seq: int
    pinned: tuple[Message, ...]
    summary_tokens: int
    prepared: tuple[SummaryNode, ...] = ()
    absorbed: tuple[SummaryNode, ...] = ()
    text: str | None = None
    kind: ClassVar[Literal["evict"]] = "evict"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that leave."""
        return tuple(message for atom in self.atoms for message in atom.messages)


@dataclass(frozen=True, slots=True)
class Merge:
    """One node replaces these neighbouring nodes in the view.

    Nodes of one level become the children of a node of the next level. Of different levels, the lower ones join the
    children of the highest. A single node only becomes shorter.

    Args:
        prepared: the node, if it is there already.
        text: what the node says; None: a model writes it.
    """

    nodes: tuple[SummaryNode, ...]
    summary_tokens: int
    prepared: tuple[SummaryNode, ...] = ()
    text: str | None = None
    kind: ClassVar[Literal["merge"]] = "merge"

    @property
    def level(self) -> int:
        """The level of the new node."""
        levels = [node.level for node in self.nodes]
        return max(levels) + (len(levels) > 1 and (len(set(levels)) == 1 or max(levels) == 0))

    @property
    def children(self) -> tuple[int, ...]:
        """The numbers of the new node's children, oldest first."""
        level = self.level
        groups = (node.children if node.level == level and node.children else (node.seq,) for node in self.nodes)
        return tuple(seq for group in groups for seq in group)  # a copy of a fork has no children of its own


@dataclass(frozen=True, slots=True)
class Stub:
    """Show rows in part (row number -> characters). `sent`: a model has read some, so the prefix is rewritten."""

    stubs: Mapping[int, int]
    sent: bool
    kind: ClassVar[Literal["stub"]] = "stub"


Plan = Evict | Merge | Stub

FIXED = ("tools", "system prompt", "memory blocks", "files", "status")
"""The segments that no plan can make smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The next request and all that its plan depends on.

    Args:
        certificate: the tokens of the request as it is.
        nodes: the summary nodes in view, oldest first.
        pinned: rows shown before those that follow the prefix.
        rows: the rows that follow the prefix, whole, oldest first.
        run_seq: the current run; its input stays in view.
        turn_from: the first row of the caller's request, if earlier runs served it too; their input stays as well.
        stubs: the rows that are shown in part.
        seen_upto: the newest row that a model has answered in this run; -1: none. Newer rows can't leave.
        sent_upto: the newest row that this run has sent to a model, answered or not.
        can_open: the model has the tools that open handles, so texts may be cut.
        keep_share: how much of the room for messages that may leave is full after an eviction.
        prepared: summaries that are not in view yet, oldest first.
        summaries: the sizes of summaries.
        compaction: what the agent's owner wants to leave, and how.
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
    keep_share: float = KEEP_SHARE
    prepared: tuple[SummaryNode, ...] = ()
    summaries: SummarySettings = field(default_factory=SummarySettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    counter: TokenCounter

    def tokens_of(self, message: Message) -> int:
        """Return the upper estimate of a row in its visible form."""
        return row_tokens(message, self.stubs, self.counter)

    @property
    def room_tokens(self) -> int:
        """The budget's room for summaries and messages."""
        fixed = sum(segment.tokens for segment in self.certificate.segments if segment.name in FIXED)
        return max(0, self.certificate.budget_tokens - fixed)


def plan(situation: Situation) -> Plan | None:
    """Return the next step that makes the request fit; None if it fits.

    None also if nothing more can leave and it is not certain that the request is too large: only the corrected estimate
    says so, or the certificate allows a try. Then the provider decides, unless it has refused such a request already.

    The order: cut a new row that is too large by itself; put prepared summaries in the place of the oldest atoms; merge
    summaries that are too many; evict the oldest atoms; cut the newest turn, its tool results and call messages before
    its user's words; join and shorten summaries.

    Raises: IrreducibleFloor: before the first step, if all of them can't be enough.
    """
    certificate = situation.certificate
    if certificate.fits:
        return None
    if _least_tokens(situation) > certificate.budget_tokens:
        _raise_irreducible(situation)
    # The user's messages that are stubs already may be cut like results.
    stubbed_input = [message for message in input_rows(situation) if message.seq in situation.stubs]
    next_plan = (
        cut_oversized(situation)
        or swap(situation)
        or plan_merge(situation)
        or _evict(situation)
        or _cut(situation, [*_newest_results(situation), *_call_messages(situation), *stubbed_input])
        or _cut(situation, list(input_rows(situation)))
        or _join(situation)
        or _evict(situation, least=LEAST_SUMMARY)
    )
    is_too_large = certificate.factor > 1 or certificate.estimated_tokens > certificate.budget_tokens
    if next_plan is None and (certificate.was_refused or (is_too_large and certificate.fixed_at_least is None)):
        _raise_irreducible(situation)
    return next_plan


def _least_tokens(situation: Situation) -> float:
    """Return the tokens of a request from which everything has left that can. If the certificate allows a try, a lower
    bound for any tokenizer; else the lowest reading of the estimate."""
    certificate = situation.certificate
    certain, rows = certificate.fixed_at_least, 0
    for message in _rows_that_stay(situation):
        tokens = situation.tokens_of(message)
        tokens = tokens if certain is None else min(tokens, situation.counter.at_least(message.text))
        rows += min(tokens, STUB_TOKENS) if situation.can_open and stub_chars(message) else tokens
    if certain is not None:
        return certain + rows
    fixed = sum(segment.tokens for segment in certificate.segments if segment.name in FIXED)
    return (fixed + rows - max(0, certificate.overcount)) * certificate.factor


def summary_limit(budget_tokens: int) -> int:
    """Return the limit of one summary in tokens."""
    low, high = SUMMARY_LIMITS
    return max(low, min(high, int(budget_tokens * SUMMARY_SHARE)))


def leaving_next(situation: Situation) -> list[Message]:
    """Return the messages that leave the view when the free room is full, oldest first."""
    certificate = situation.certificate
    removal = _evict(situation, coming=max(0, certificate.budget_tokens - certificate.tokens))
    return [] if removal is None else messages_of(removal.atoms)


def prepared_leaves(situation: Situation) -> Sequence[tuple[SummaryNode, int]]:
    """Return the prepared summaries of the oldest atoms without a gap, each with how many atoms it stands for."""
    candidates, _ = split_atoms(situation)
    by_first = {node.from_message_seq: node for node in situation.prepared if node.level == 0}
    leaves: list[tuple[SummaryNode, int]] = []
    start = 0
    while start < len(candidates) and (node := by_first.get(candidates[start].messages[0].seq)) is not None:
        count = sum(atom.upto_seq <= node.upto_message_seq for atom in candidates[start:])
        if not count or candidates[start + count - 1].upto_seq != node.upto_message_seq:
            break  # what it stands for can't leave as a whole
        leaves.append((node, count))
        start += count
    return leaves


def swap(situation: Situation) -> Evict | None:
    """Plan to put all prepared summaries in the place of their atoms; None if that frees too little."""
    leaves = prepared_leaves(situation)
    if not leaves:
        return None
    stay = {message.seq for message in input_rows(situation)}
    leaving = split_atoms(situation)[0][: sum(count for _, count in leaves)]
    gone = (row for row in (*situation.pinned, *messages_of(leaving)) if row.seq not in stay)
    spent = sum(node.tokens + NODE_OVERHEAD for node, _ in leaves)
    if sum(map(situation.tokens_of, gone)) < spent + WORTH_TOKENS:
        return None
    nodes = tuple(node for node, _ in leaves)
    return evict_atoms(situation, leaving, sum(node.tokens for node in nodes), stay=stay, prepared=nodes)


def plan_unsent(situation: Situation) -> Evict | Merge | None:
    """Plan how to use prepared summaries in a view whose prefix was not sent yet, so that its change costs nothing."""
    merge = plan_merge(situation)
    return swap(situation) or (merge if merge is not None and merge.prepared else None)


def evict_atoms(
    situation: Situation,
    leaving: Sequence[Atom],
    summary_tokens: int,
    *,
    stay: set[int],
    prepared: tuple[SummaryNode, ...] = (),
    absorbed: tuple[SummaryNode, ...] = (),
) -> Evict:
    """Build the plan to evict these oldest atoms; their rows with the numbers `stay` become pinned."""
    evicted = messages_of(leaving)
    pinned = tuple(message for message in (*situation.pinned, *evicted) if message.seq in stay)
    return Evict(tuple(leaving), situation.rows[len(evicted)].seq, pinned, summary_tokens, prepared, absorbed)


def _evict(situation: Situation, *, least: int = 0, coming: int = 0) -> Evict | None:
    """Plan to evict the oldest atoms until the rest fills `keep_share` of the room for atoms that may leave.

    Args:
        coming: the tokens of messages that are not there yet.
        least: the smallest summary, where any gain counts; 0: the usual limit, for a gain of `WORTH_TOKENS`.
    """
    candidates, fixed = split_atoms(situation)
    stay = {message.seq for message in input_rows(situation)}
    most = min(situation.summaries.leaf_target_tokens, summary_limit(situation.certificate.budget_tokens))
    limit = least or most
    shown_tokens = coming + sum(map(situation.tokens_of, (*situation.pinned, *situation.rows)))
    stay_tokens = sum(map(situation.tokens_of, _rows_that_stay(situation)))
    # Where the estimate is too high, less has to go than it says.
    room = situation.room_tokens * _overestimate(situation.certificate)
    target = stay_tokens + max(0, room - stay_tokens) * situation.keep_share - limit
    # Pinned input of earlier runs leaves with any eviction.
    freed = sum(situation.tokens_of(message) for message in situation.pinned if message.seq not in stay)
    cut = 0
    for atom in candidates:
        cut += 1
        freed += sum(situation.tokens_of(message) for message in atom.messages if message.seq not in stay)
        if shown_tokens - freed <= target:
            break
    if not cut:
        if not freed or not situation.rows:
            return None
        return Evict((), situation.rows[0].seq, tuple(row for row in situation.pinned if row.seq in stay), 0)
    cut, freed = _extend_to_turn(situation, (*candidates, *fixed[:1]), cut, freed, stay=stay)
    worth = NODE_OVERHEAD + (SECTION_OVERHEAD if not situation.nodes else 0) if least else WORTH_TOKENS
    if freed < limit + worth:
        limit = freed - worth
        if limit < (least or SUMMARY_LIMITS[0]):
            return None
    return evict_atoms(situation, candidates[:cut], limit, stay=stay)


def _rows_that_stay(situation: Situation) -> list[Message]:
    """Return the rows that no eviction removes: the run's input, what no model has seen, and the newest atom."""
    may_go, fixed = split_atoms(situation)
    stay = {message.seq for message in input_rows(situation)}
    rows = (*situation.pinned, *messages_of(may_go))
    return [*(message for message in rows if message.seq in stay), *messages_of(fixed)]


def split_atoms(situation: Situation) -> tuple[Sequence[Atom], Sequence[Atom]]:
    """Split the atoms into those that may leave, oldest first, and those that can't yet."""

    def may_go(atom: Atom) -> bool:
        """Whether an atom may leave the view."""
        # An answer of an earlier run may have results in this one: approved calls, or calls that the caller ran.
        return atom.upto_seq <= situation.seen_upto or all(row.run_seq != situation.run_seq for row in atom.messages)

    all_atoms = atoms(situation.rows)
    count = len(list(takewhile(may_go, all_atoms[:-1])))
    return all_atoms[:count], all_atoms[count:]


def _extend_to_turn(
    situation: Situation, following: Sequence[Atom], cut: int, freed: int, *, stay: set[int]
) -> tuple[int, int]:
    """Return (cut, freed), moved to the beginning of the next run if that is near: a view reads better from there on.

    Args:
        following: all atoms that may leave, oldest first, and the one behind them.
        cut, freed: how many of them leave, and the tokens that this frees.
    """
    freed_later, slack = freed, situation.room_tokens * KEEP_SHARE / 2
    for later in range(cut, len(following)):
        atom = following[later]
        if atom.run_seq != following[later - 1].run_seq and atom.messages[0].role == "user":
            return later, freed_later
        freed_later += sum(situation.tokens_of(message) for message in atom.messages if message.seq not in stay)
        if freed_later - freed > slack:
            break
    return cut, freed


def plan_merge(situation: Situation) -> Merge | None:
    """Plan to merge the oldest nodes of the lowest level with too many; if all are too large, of the fullest level."""
    levels = [tuple(group) for _, group in groupby(situation.nodes, key=lambda node: node.level)]
    limit = min(situation.summaries.condensed_target_tokens, summary_limit(situation.certificate.budget_tokens))
    merge_count = situation.summaries.condensed_min_fanout
    for nodes in reversed(levels):
        if len(nodes) >= merge_count + NODES_SPARE:
            return _build_merge(situation, nodes[:merge_count], limit)
    summaries = sum(segment.tokens for segment in situation.certificate.segments if segment.name == "summary")
    if summaries <= situation.room_tokens * NODES_SHARE:
        return None
    candidates = max(levels, key=len, default=())
    if len(candidates) < 2:
        candidates = situation.nodes[-3:]
    return _build_merge(situation, candidates, limit) if len(candidates) > 1 else None


def _build_merge(situation: Situation, nodes: tuple[SummaryNode, ...], limit: int) -> Merge:
    """Build a merge whose summary is smaller than the nodes together."""
    merge = Merge(nodes, min(limit, max(LEAST_SUMMARY, sum(node.tokens for node in nodes) * 3 // 4)))
    ready = [node for node in situation.prepared if (node.level, node.children) == (merge.level, merge.children)]
    return replace(merge, prepared=tuple(ready[-1:]))


def _join(situation: Situation) -> Merge | None:
    """Plan to join all summaries into one, or to shorten the only one: the last step."""
    nodes = situation.nodes
    can_shrink = len(nodes) > 1 or (nodes and nodes[0].tokens > LEAST_SUMMARY + NODE_OVERHEAD // 2)
    return Merge(nodes, LEAST_SUMMARY) if can_shrink else None


def cut_oversized(situation: Situation) -> Stub | None:
    """Plan to cut rows that no model has seen to their share of the room, or to more if enough can be freed."""
    room = situation.room_tokens * _overestimate(situation.certificate)
    newcomers = [
        message
        for message in (*_newest_results(situation), *_call_messages(situation), *input_rows(situation))
        if message.seq > situation.sent_upto
    ]
    rows = {message.seq: situation.tokens_of(message) for message in newcomers}
    stay_tokens = sum(map(situation.tokens_of, _rows_that_stay(situation)))
    others = sum(map(situation.tokens_of, (*situation.pinned, *situation.rows))) - stay_tokens
    other_tokens = stay_tokens - sum(rows.values()) + min(others, room * KEEP_SHARE)
    if situation.nodes or others:
        other_tokens += SECTION_OVERHEAD + NODE_OVERHEAD + summary_limit(situation.certificate.budget_tokens)
    most = max(room * OVERSIZE_SHARE, min((room - other_tokens) * 0.9, room * CUT_SHARE_MAX))
    return _plan_stubs(situation, newcomers, sum(rows.values()) - most)


def _cut(situation: Situation, rows: Sequence[Message]) -> Stub | None:
    """Plan to cut the largest of these rows by as much as is over the budget; None if that can't help."""
    over = situation.certificate.over_tokens * max(1.0, _overestimate(situation.certificate))
    return _plan_stubs(situation, rows, over + WORTH_TOKENS)


def _plan_stubs(situation: Situation, rows: Sequence[Message], tokens_to_save: float) -> Stub | None:
    """Plan to cut the largest of these rows to a common size, to save so many tokens; None: nothing is gained."""
    if not situation.can_open or tokens_to_save <= 0:
        return None
    tokens = {message.seq: situation.tokens_of(message) for message in rows if stub_chars(message)}
    level = _level(sorted(tokens.values(), reverse=True), tokens_to_save)
    stubs = dict(situation.stubs)
    for message in rows:
        size = tokens.get(message.seq, 0)
        if size <= max(level, STUB_TOKENS):
            continue
        whole = min(situation.stubs.get(message.seq, stub_chars(message)), stub_chars(message))
        # Characters only estimate tokens, so cut a tenth more; the engine plans again in any case.
        chars = int(whole * max(0.0, level - STUB_TOKENS) / size * 0.9)
        if row_tokens(message, {**stubs, message.seq: chars}, situation.counter) < size:
            stubs[message.seq] = chars
    changed = [seq for seq, chars in stubs.items() if situation.stubs.get(seq) != chars]
    return Stub(stubs, sent=min(changed) <= situation.sent_upto) if changed else None


def _level(sizes: Sequence[int], less: float) -> float:
    """Return the size to which the largest of `sizes` must shrink so that their sum falls by `less`; 0: impossible."""
    above = 0
    for count, size in enumerate(sizes, 1):
        above += size
        level = (above - less) / count
        if level >= (sizes[count] if count < len(sizes) else 0):
            return level
    return 0.0


def _newest_results(situation: Situation) -> Iterator[Message]:
    """Return the results that no model has seen."""
    results = (row for row in situation.rows if row.role == "tool" and row.run_seq == situation.run_seq)
    return (row for row in results if row.seq > situation.seen_upto)


def _call_messages(situation: Situation) -> Iterator[Message]:
    """Return the messages with calls that can't leave yet, for what the model said or thought beside the calls."""
    return (message for message in messages_of(split_atoms(situation)[1]) if message.calls)


def input_rows(situation: Situation) -> Iterator[Message]:
    """Return the run's input: the messages of its user."""
    return (row for row in _rows_of_turn(situation) if row.role == "user" and row.kind == "message")


def _rows_of_turn(situation: Situation) -> Iterator[Message]:
    """Return the rows of the current run, and of earlier runs for the same request of the caller."""
    first, run = situation.turn_from, situation.run_seq
    rows = (*situation.pinned, *situation.rows)
    return (row for row in rows if row.run_seq == run or (first is not None and row.seq >= first))


def messages_of(group: Sequence[Atom]) -> list[Message]:
    """Return the rows of these atoms, in order."""
    return [message for atom in group for message in atom.messages]


def _overestimate(certificate: Certificate) -> float:
    """Return the uncorrected estimate divided by the corrected one."""
    return certificate.estimated_tokens / max(1, certificate.tokens)


def _raise_irreducible(situation: Situation) -> NoReturn:
    """Raise the error of a request that can't be made to fit."""
    certificate = situation.certificate
    tokens, largest = max(((situation.tokens_of(row), row.id) for row in _rows_of_turn(situation)), default=(0, None))
    raise IrreducibleFloor(
        reason="no_candidate" if _least_tokens(situation) <= certificate.budget_tokens else "floor_exceeds_target",
        sizes={segment.name: segment.tokens for segment in certificate.segments},
        window_tokens=certificate.window_tokens,
        reserve_tokens=certificate.reserve_tokens,
        refused_tokens=certificate.estimated_tokens - certificate.overcount if certificate.was_refused else 0,
        message=(largest, tokens) if largest is not None and 2 * tokens > certificate.budget_tokens else None,
    )
