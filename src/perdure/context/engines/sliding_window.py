"""Letta's engines: the oldest share of the messages leaves when the window is full, behind one summary; as MemGPT did,
with one summary before the messages; or all but a fixed number of messages leave, whatever the size of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from perdure.context.engines.port import ContextEngine, ShippedEngine
from perdure.context.window.atoms import Atom
from perdure.context.window.plan import (
    LEAST_SUMMARY,
    NODE_OVERHEAD,
    SECTION_OVERHEAD,
    SUMMARY_LIMITS,
    Evict,
    Plan,
    Situation,
    evict_atoms,
    input_rows,
    messages_of,
    plan,
    split_atoms,
    summary_limit,
)
from perdure.core.conversations import EVICT_SHARE
from perdure.core.errors import InvalidInput, IrreducibleFloor
from perdure.core.messages import Message, unlogged_message
from perdure.core.nodes import SummaryNode


def begins_turn(row: Message) -> bool:
    """Whether the row is a user's message: a view reads well from there on."""
    return row.role == "user" and row.kind == "message"


def oldest_share(
    groups: Sequence[Atom], following: Sequence[Message], sizes: Sequence[int], *, share: float, limit_tokens: float
) -> int:
    """Return how many of the oldest atoms leave: at least this share (0 to 1) of all rows, and so many that the others
    take at limit_tokens `limit_tokens`. What stays begins with a user's message; 0 if no such cut is enough.

    Args:
        groups: the atoms that may leave, oldest first.
        following: the rows behind them, which stay.
        sizes: the tokens of each atom, then those of all following rows.
    """
    total = sum(len(atom.messages) for atom in groups) + len(following)
    tokens_left, count = sum(sizes), 0
    firsts = [atom.messages[0] for atom in groups[1:]] + list(following[:1])
    for number, (atom, first) in enumerate(zip(groups, firsts, strict=False), 1):
        count += len(atom.messages)
        tokens_left -= sizes[number - 1]
        if count >= ceil(share * total) and tokens_left <= limit_tokens and begins_turn(first):
            return number
    return 0


def evict_share(situation: Situation, share: float, *, absorbs: bool) -> Evict | None:
    """Plan to evict the oldest share of the messages in view; None if no cut between two turns does that.

    Args:
        share: of the rows, from 0 to 1.
        absorbs: whether the summary takes the place of all others.
    """
    candidates, fixed = split_atoms(situation)
    following = messages_of(fixed)
    sizes = [sum(map(situation.tokens_of, atom.messages)) for atom in candidates]
    sizes.append(sum(map(situation.tokens_of, following)))
    count = oldest_share(candidates, following, sizes, share=share, limit_tokens=(1 - share) * situation.room_tokens)
    return evict_count(situation, count, absorbs=absorbs) if count else None


def evict_count(situation: Situation, count: int, *, absorbs: bool) -> Evict | None:
    """Plan to evict so many of the oldest atoms; None if they take no more than the summary that would stand for them.
    The run's input among them stays. `absorbs`: the summary takes the place of all others."""
    candidates, _ = split_atoms(situation)
    leaving = candidates[:count]
    if not leaving:
        return None
    absorbed = situation.nodes if absorbs else ()
    stay = {message.seq for message in input_rows(situation)}
    freed = tokens_leaving(situation, leaving, absorbed, stay=stay)
    overhead = NODE_OVERHEAD + (0 if situation.nodes else SECTION_OVERHEAD)
    limit = min(summary_limit(situation.certificate.budget_tokens), freed - overhead - 1)
    if limit < (LEAST_SUMMARY if absorbs else SUMMARY_LIMITS[0]):
        return None
    return evict_atoms(situation, leaving, limit, stay=stay, absorbed=absorbed)


def leaving_by(engine: ContextEngine, situation: Situation) -> list[Message]:
    """Return the messages that the engine's next plan takes out of view, oldest first: the plan for one more message if
    that has to compact, else the plan for a message that fills the window."""
    if not situation.rows:
        return []
    coming = replace(unlogged_message("user", "…"), seq=situation.rows[-1].seq + 1)
    certificate = situation.certificate
    free = max(0, certificate.budget_tokens - certificate.tokens)
    following = replace(situation, rows=(*situation.rows, coming))
    # As if the message took all free tokens and one more.
    full = replace(following, certificate=replace(certificate, overcount=certificate.overcount - free - 1))
    try:
        found = engine.assemble(following) or engine.plan(full)
    except IrreducibleFloor:
        return []
    return messages_of(found.atoms) if isinstance(found, Evict) else []


def tokens_leaving(
    situation: Situation, leaving: Sequence[Atom], absorbed: Sequence[SummaryNode], *, stay: set[int]
) -> int:
    """Return the tokens that an eviction takes out of the view: of these atoms, of pinned rows, and of absorbed nodes.
    `stay`: the numbers of the rows that stay in view, pinned."""
    rows = [row for row in (*situation.pinned, *messages_of(leaving)) if row.seq not in stay]
    return sum(map(situation.tokens_of, rows)) + sum(node.tokens + NODE_OVERHEAD for node in absorbed)


class SlidingWindow(ShippedEngine):
    """The share is the agent's `sliding_window_percentage`, 0.3 by default, more where the rest would not fit its part
    of the window. With the modes `all`, all messages leave that may. It is what takes over from a failed engine."""

    name = "sliding_window"
    owns_compaction = True

    def plan(self, situation: Situation) -> Plan | None:
        """Return Perdure's own plan, with the share of messages that this engine evicts."""
        share = self.share(situation)
        # Perdure's plan cuts what is too large by itself, and finds a floor; only its evictions are replaced.
        found = plan(replace(situation, prepared=(), keep_share=min(0.9, 1 - share)))
        if not isinstance(found, Evict) or not found.atoms:
            return found
        own = None
        if not situation.compaction.takes_all:
            own = evict_share(situation, share, absorbs=self.absorbs)
        count = len(split_atoms(situation)[0]) if situation.compaction.takes_all else len(found.atoms)
        return own or evict_count(situation, count, absorbs=self.absorbs) or found

    def share(self, situation: Situation) -> float:
        """Return the share of the messages that leaves."""
        share = situation.compaction.evict_share
        return EVICT_SHARE if share is None else share


class RecursiveSummary(SlidingWindow):
    """`sliding_window`, but each summary is made from the one before it and replaces it."""

    name = "recursive_summary"
    absorbs = True

    def __init__(self, *, partial_evict_summarizer_percentage: float = EVICT_SHARE) -> None:
        """Make the engine. Raises: InvalidInput.

        Args:
            partial_evict_summarizer_percentage: the share of the messages that leaves; an agent's
                `sliding_window_percentage` wins.
        """
        share = partial_evict_summarizer_percentage
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise InvalidInput(f"partial_evict_summarizer_percentage is {share!r:.80}: give a number above 0, up to 1")
        self._own_share = float(share)

    def share(self, situation: Situation) -> float:
        """Return the share of messages to evict: the agent's setting, else this engine's own."""
        share = situation.compaction.evict_share
        return self._own_share if share is None else share


class MessageBuffer(RecursiveSummary):
    """Keeps at most a fixed number of messages in view: beyond it, all but the newest leave behind one summary, up to a
    user's message. If the window fills before that, `recursive_summary` decides."""

    name = "message_buffer"

    def __init__(self, *, message_buffer_limit: int = 10, message_buffer_min: int = 3) -> None:
        """Make the engine.

        Args:
            message_buffer_limit: the most messages in view.
            message_buffer_min: how many of them stay at least.

        Raises: InvalidInput.
        """
        super().__init__()
        limit, least = message_buffer_limit, message_buffer_min
        if type(limit) is not int or type(least) is not int or not 1 <= least < limit:
            raise InvalidInput(
                f"message_buffer_limit is {limit!r:.80} and message_buffer_min {least!r:.80}: give whole numbers from"
                " 1 on, the second below the first"
            )
        self._limit, self._least = limit, least

    def assemble(self, situation: Situation) -> Evict | None:
        """Evict the oldest messages, up to a user's message, if more than the limit are in view; else None."""
        rows = [row for row in (*situation.pinned, *situation.rows) if row.kind == "message"]
        if len(rows) <= self._limit:
            return None
        candidates, fixed = split_atoms(situation)
        following = [*candidates, *fixed]
        left, cut = len(rows) - len(situation.pinned), 0  # rows behind the cut; how many atoms leave
        for count, atom in enumerate(candidates, 1):
            left -= sum(row.kind == "message" for row in atom.messages)
            if left < self._least:
                break
            if begins_turn(messages_of(following[count : count + 1])[0]):
                cut = count
        return evict_count(situation, cut, absorbs=True)
