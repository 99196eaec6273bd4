"""Plan which summaries of messages to prepare before the window is full.

Pure, as `plan` is. A leaf stands for neighbouring atoms, the oldest first, and never for the newest messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from perdure.context.window.atoms import Atom
from perdure.context.window.economics import (
    CHUNK_SHARE,
    COLD_AFTER,
    LAST_CHUNK_SHARE,
    LEAF_SHARE,
    RUNS_AHEAD,
    TAIL_SHARE,
    WASTE_SHARE,
    WRITE_PRICE,
    spent_on,
    summary_price,
)
from perdure.context.window.plan import (
    FIXED,
    KEEP_SHARE,
    SUMMARY_LIMITS,
    Evict,
    Merge,
    Situation,
    plan_merge,
    prepared_leaves,
    split_atoms,
)
from perdure.core.nodes import SummaryNode


def is_due(situation: Situation) -> bool:
    """Whether so much of the window is full that summaries are prepared."""
    settings, certificate = situation.summaries, situation.certificate
    if not settings.background or certificate.tokens < settings.context_threshold * certificate.budget_tokens:
        return False
    is_near = certificate.tokens + RUNS_AHEAD * _largest_run(situation) > certificate.budget_tokens
    return is_near or _rests(situation)


def _rests(situation: Situation) -> bool:
    """Whether there was a pause in view after which a provider's cache had run out."""
    times = [row.created_at for row in situation.rows]
    return any(after - before > COLD_AFTER for before, after in pairwise(times))


def _largest_run(situation: Situation) -> int:
    """Return the tokens of the largest run in view."""
    sizes: dict[int | None, int] = {}
    for row in situation.rows:
        sizes[row.run_seq] = sizes.get(row.run_seq, 0) + situation.tokens_of(row)
    return max(sizes.values(), default=0)


def next_preparation(situation: Situation) -> Evict | Merge | None:
    """Return what the next prepared summary stands for; None: all are prepared."""
    leaves = tuple(node for node, _ in prepared_leaves(situation))
    merge = plan_merge(replace(situation, nodes=(*situation.nodes, *leaves)))
    if merge is not None and not merge.prepared:
        return merge
    return next(iter(plan_leaves(situation)), None)


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
    left = _allowance(situation)
    all_tokens = sum(situation.tokens_of(message) for atom in waiting for message in atom.messages)
    covered = 0
    while waiting:
        count, tokens = _chunk_length(situation, waiting, chunk_tokens)
        atoms = waiting[:count]
        enough = sum(len(atom.messages) for atom in atoms) >= settings.leaf_min_fanout or tokens * 2 >= chunk_tokens
        if not enough or (count == len(waiting) and tokens < chunk_tokens * LAST_CHUNK_SHARE):
            break  # more may come
        target = max(SUMMARY_LIMITS[0], min(settings.leaf_target_tokens, int(tokens * LEAF_SHARE)))
        left -= summary_price(tokens, target)
        if left < 0:
            break
        covered += tokens
        leaves.append(Evict(tuple(atoms), atoms[-1].upto_seq + 1, (), target))
        waiting = waiting[count:]
    if left < 0 and not first and covered * 3 < all_tokens * 2:
        return ()  # to put them into the view would soon have to be followed by another new prefix
    return leaves


def _allowance(situation: Situation) -> float:
    """Return what summaries may cost that the conversation does not need yet, in plain tokens."""
    if situation.nodes:
        return math.inf
    rows = situation.rows
    sizes = list(map(situation.tokens_of, rows))
    fixed = sum(part.tokens for part in situation.certificate.segments if part.name in FIXED)
    spent = spent_on(sizes, [row.role == "assistant" for row in rows], fixed=fixed)
    paid = sum(summary_price(_source_tokens(situation, node), node.tokens) for node in situation.prepared)
    return WASTE_SHARE * spent + WRITE_PRICE * fixed - paid


def _source_tokens(situation: Situation, node: SummaryNode) -> int:
    """Return the tokens of the rows in view that a node stands for."""
    first, last = node.from_message_seq, node.upto_message_seq
    return sum(situation.tokens_of(row) for row in situation.rows if first <= row.seq <= last)


def _tail_length(situation: Situation, atoms: Sequence[Atom]) -> int:
    """Return how many of the newest atoms no leaf covers: the newest always, and those before it within the limits.

    By default so many that after one more run, as large as the largest in view, they are what an eviction leaves.
    """
    settings, room = situation.summaries, situation.room_tokens
    most = settings.fresh_tail_tokens
    if most is None:
        most = max(int(room * KEEP_SHARE) - _largest_run(situation), int(room * TAIL_SHARE))
    messages = tokens = 0
    for length, atom in enumerate(reversed(atoms)):
        messages += len(atom.messages)
        tokens += sum(map(situation.tokens_of, atom.messages))
        if length and (messages > settings.fresh_tail_messages or tokens > most):
            return length
    return len(atoms)


def _chunk_length(situation: Situation, atoms: Sequence[Atom], chunk_tokens: int) -> tuple[int, int]:
    """Return how many atoms, at least one, make a chunk, and its tokens. It ends before a user's message, if that
    leaves at least half of it. A large atom that follows less than half a chunk belongs to it."""
    turn = (0, 0)
    tokens = 0
    for count, atom in enumerate(atoms):
        size = sum(map(situation.tokens_of, atom.messages))
        if count and atom.messages[0].role == "user":
            turn = (count, tokens)
        if tokens * 2 >= chunk_tokens and tokens + size > chunk_tokens:
            return turn if turn[1] * 2 >= chunk_tokens else (count, tokens)
        tokens += size
    return len(atoms), tokens
