"""Evictions that engines build: the oldest messages, up to a place where a view reads well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from perdure.context.engines.port import ContextEngine
from perdure.context.window.atoms import Atom
from perdure.context.window.plan import (
    LEAST_SUMMARY,
    NODE_OVERHEAD,
    SECTION_OVERHEAD,
    SUMMARY_LIMITS,
    Evict,
    Situation,
    evict_atoms,
    input_rows,
    messages_of,
    split_atoms,
    summary_limit,
)
from perdure.core.errors import IrreducibleFloor
from perdure.core.messages import Message, unlogged_message
from perdure.core.nodes import SummaryNode


def begins_turn(row: Message) -> bool:
    """Whether a view reads well from this row on."""
    return row.role == "user" and row.kind == "message"


def oldest_share(
    groups: Sequence[Atom], following: Sequence[Message], sizes: Sequence[int], *, share: float, most: float
) -> int:
    """Return how many of the oldest atoms leave: at least this share of all rows, and so many that the rest takes at
    most `most` tokens. The rest begins with a user's message; 0 if no such cut is enough.

    Args:
        groups: the atoms that may leave, oldest first.
        following: the rows behind them.
        sizes: the tokens of each atom, and of the rows behind them together.
    """
    total = sum(len(atom.messages) for atom in groups) + len(following)
    left, count = sum(sizes), 0
    firsts = [atom.messages[0] for atom in groups[1:]] + list(following[:1])
    for number, (atom, first) in enumerate(zip(groups, firsts, strict=False), 1):
        count += len(atom.messages)
        left -= sizes[number - 1]
        if count >= ceil(share * total) and left <= most and begins_turn(first):
            return number
    return 0


def evict_share(situation: Situation, share: float, *, absorbs: bool) -> Evict | None:
    """Plan to evict the oldest share of the messages in view; None if no cut between two turns does that.

    Args:
        absorbs: whether the summary takes the place of all others.
    """
    candidates, fixed = split_atoms(situation)
    following = messages_of(fixed)
    sizes = [sum(map(situation.tokens_of, atom.messages)) for atom in candidates]
    sizes.append(sum(map(situation.tokens_of, following)))
    count = oldest_share(candidates, following, sizes, share=share, most=(1 - share) * situation.room_tokens)
    return evict_count(situation, count, absorbs=absorbs) if count else None


def evict_count(situation: Situation, count: int, *, absorbs: bool) -> Evict | None:
    """Plan to evict so many of the oldest atoms; None if they take no more than the summary that would stand for them.

    The run's input among them stays.
    """
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
    """Return the messages that the next plan of a pure engine takes out of the view, oldest first: the plan before an
    answer to one more message, else that for a message that fills the window."""
    if not situation.rows:
        return []
    coming = replace(unlogged_message("user", "…"), seq=situation.rows[-1].seq + 1)
    certificate = situation.certificate
    free = max(0, certificate.budget_tokens - certificate.tokens)
    following = replace(situation, rows=(*situation.rows, coming))
    full = replace(following, certificate=replace(certificate, overcount=certificate.overcount - free - 1))
    try:
        found = engine.assemble(following) or engine.plan(full)
    except IrreducibleFloor:
        return []
    return messages_of(found.atoms) if isinstance(found, Evict) else []


def tokens_leaving(
    situation: Situation, leaving: Sequence[Atom], absorbed: Sequence[SummaryNode], *, stay: set[int]
) -> int:
    """Return the tokens that an eviction takes out of the view, with input of earlier runs that is pinned."""
    rows = [row for row in (*situation.pinned, *messages_of(leaving)) if row.seq not in stay]
    return sum(map(situation.tokens_of, rows)) + sum(node.tokens + NODE_OVERHEAD for node in absorbed)
