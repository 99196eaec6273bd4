"""Plan which summaries of messages to prepare before the window is full.

Pure, as `plan` is. A leaf stands for neighbouring atoms, the oldest first, and never for the newest messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.window.atoms import Atom
from perdure.context.window.plan import KEEP_SHARE, SUMMARY_LIMITS, Evict, Situation, prepared_leaves, split_atoms

CHUNK_SHARE = 0.25
"""The largest share of the room for messages that one leaf replaces."""

LEAF_SHARE = 0.12
"""The size of a summary relative to what it replaces, up to `leaf_target_tokens`."""


def is_due(situation: Situation) -> bool:
    """Whether so much of the window is full that summaries are prepared."""
    settings, certificate = situation.summaries, situation.certificate
    return settings.background and certificate.tokens >= settings.context_threshold * certificate.budget_tokens


def plan_leaves(situation: Situation) -> Sequence[Evict]:
    """Return the evictions whose summaries are to be prepared, oldest first, behind those that are prepared."""
    if not is_due(situation):
        return ()
    settings = situation.summaries
    candidates, fixed = split_atoms(situation)
    first = sum(count for _, count in prepared_leaves(situation))
    tail = _tail_length(situation, (*candidates, *fixed))
    waiting = candidates[first : max(first, len(candidates) + len(fixed) - tail)]
    # In the smallest windows nothing is left for messages: the newest has all the room.
    chunk_tokens = max(1, min(settings.leaf_chunk_tokens, int(situation.room_tokens * CHUNK_SHARE)))
    leaves: list[Evict] = []
    while waiting:
        count, tokens = _chunk_length(situation, waiting, chunk_tokens)
        atoms = waiting[:count]
        enough = sum(len(atom.messages) for atom in atoms) >= settings.leaf_min_fanout or tokens * 2 >= chunk_tokens
        if not enough or (count == len(waiting) and tokens * 2 < chunk_tokens):
            break  # more may come
        target = max(SUMMARY_LIMITS[0], min(settings.leaf_target_tokens, int(tokens * LEAF_SHARE)))
        leaves.append(Evict(tuple(atoms), atoms[-1].upto_seq + 1, (), target))
        waiting = waiting[count:]
    return leaves


def _tail_length(situation: Situation, atoms: Sequence[Atom]) -> int:
    """Return how many of the newest atoms no leaf covers: the newest always, and those before it within the limits."""
    settings = situation.summaries
    most = settings.fresh_tail_tokens
    most = int(situation.room_tokens * KEEP_SHARE) if most is None else most
    messages = tokens = 0
    for length, atom in enumerate(reversed(atoms)):
        messages += len(atom.messages)
        tokens += sum(map(situation.tokens_of, atom.messages))
        if length and (messages > settings.fresh_tail_messages or tokens > most):
            return length
    return len(atoms)


def _chunk_length(situation: Situation, atoms: Sequence[Atom], chunk_tokens: int) -> tuple[int, int]:
    """Return how many atoms, at least one, make a chunk, and its tokens. It ends before a user's message, if that
    leaves at least half of it."""
    turn = (0, 0)
    tokens = 0
    for count, atom in enumerate(atoms):
        size = sum(map(situation.tokens_of, atom.messages))
        if count and atom.messages[0].role == "user":
            turn = (count, tokens)
        if count and tokens + size > chunk_tokens:
            return turn if turn[1] * 2 >= chunk_tokens else (count, tokens)
        tokens += size
    return len(atoms), tokens
