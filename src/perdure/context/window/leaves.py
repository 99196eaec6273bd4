"""Plan which summaries of messages to prepare before the window is full, and when requests begin with a new prefix, as
providers charge for their caches: all constants of that rule are here.

Pure, as `plan` is. A leaf stands for neighbouring atoms, the oldest first, and never for the newest messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from perdure.context.window import plan
from perdure.context.window.atoms import Atom
from perdure.core.nodes import SummaryNode

WRITE_PRICE, READ_PRICE = 1.25, 0.1
"""What a token costs that is written to a provider's cache, and one that is read from it, relative to a plain one."""

COLD_AFTER = timedelta(hours=1)
"""Providers drop a cached prefix that is unused for longer, so a rewrite then costs nothing."""

RUNS_MAX = 10
"""The last runs of a conversation, by which the calls of the next are expected."""

RUNS_AHEAD = 2
"""Summaries are prepared when so many runs, as large as the largest in view, would not fit any more. Earlier they would
cover less, and be paid for where the conversation ends before."""

CHUNK_SHARE = 0.6
"""The largest share of the room for messages that one prepared summary replaces. Each call of its model costs a few
hundred tokens more than what it reads, so a small window has few."""

LAST_CHUNK_SHARE = 0.25
"""The least share of such a chunk that the newest of the messages to summarise must fill."""

TAIL_SHARE = 0.15
"""The least share of the room for messages that the newest ones keep which no prepared summary covers."""

LEAF_SHARE = 0.06
"""The size of a prepared summary relative to what it replaces. Its tokens cost five times as much as those it is made
of, and are read with each later request: at 0.12, conversations cost 5 % more."""

OUTPUT_PRICE = 5.0
"""What a token of an answer costs, relative to a plain one of a request."""

WASTE_SHARE = 0.2
"""The most that summaries may cost, relative to what the messages in view have cost, before the window is full for the
first time: a conversation that ends before has not much paid for nothing."""


def spent_on(sizes: Sequence[int], answers: Sequence[bool], *, fixed: int) -> float:
    """Return what the calls of a conversation have cost, in plain tokens: each wrote what was new and read the rest.

    Args:
        sizes: the tokens of its rows, oldest first.
        answers: whether a row is a model's answer, before which a call was made.
        fixed: the tokens before the rows.
    """
    spent, size = fixed * WRITE_PRICE, fixed
    for tokens, is_answer in zip(sizes, answers, strict=True):
        spent += tokens * WRITE_PRICE
        if is_answer:
            spent += size * READ_PRICE + tokens * OUTPUT_PRICE
        size += tokens
    return spent


def summary_price(source: int, summary: int) -> float:
    """Return what a summary costs, in plain tokens of its request and its answer."""
    return source + summary * OUTPUT_PRICE


def expected_calls(runs: Sequence[int], *, runs_max: int = RUNS_MAX) -> float:
    """Return how many calls a run takes, the mean of the last runs. `runs`: the run of each call, newest first."""
    counts = {run: runs.count(run) for run in list(dict.fromkeys(runs))[:runs_max]}
    return sum(counts.values()) / max(1, len(counts))


def pays_to_rewrite(*, removed: int, kept: int, calls: float) -> bool:
    """Whether `calls` more calls save more by not reading `removed` tokens than caching `kept` tokens anew costs."""
    return removed * READ_PRICE * calls > kept * (WRITE_PRICE - READ_PRICE)


def swap_reason(*, idle: timedelta | None, removed: int, kept: int, calls: float) -> str | None:
    """Return why prepared summaries take the place of their messages before the window is full; None: they do not.

    Args:
        idle: the time since the conversation's last call; None: there was none.
        removed, kept, calls: as in `pays_to_rewrite`.
    """
    if idle is None or idle > COLD_AFTER:
        return "cache_cold"
    return "pays" if pays_to_rewrite(removed=removed, kept=kept, calls=calls) else None


def is_due(situation: plan.Situation) -> bool:
    """Whether so much of the window is full that summaries are prepared."""
    settings, certificate = situation.summaries, situation.certificate
    if not settings.background or certificate.tokens < settings.context_threshold * certificate.budget_tokens:
        return False
    if certificate.tokens + RUNS_AHEAD * _largest_run(situation) > certificate.budget_tokens:
        return True
    times = [row.created_at for row in situation.rows]  # a pause, after which a provider's cache had run out
    return any(after - before > COLD_AFTER for before, after in pairwise(times))


def _largest_run(situation: plan.Situation) -> int:
    """Return the tokens of the largest run in view."""
    sizes: dict[int | None, int] = {}
    for row in situation.rows:
        sizes[row.run_seq] = sizes.get(row.run_seq, 0) + situation.tokens_of(row)
    return max(sizes.values(), default=0)


def next_preparation(situation: plan.Situation) -> plan.Evict | plan.Merge | None:
    """Return what the next prepared summary stands for; None: all are prepared."""
    leaves = tuple(node for node, _ in plan.prepared_leaves(situation))
    merge = plan.plan_merge(replace(situation, nodes=(*situation.nodes, *leaves)))
    if merge is not None and not merge.prepared:
        return merge
    return next(iter(plan_leaves(situation)), None)


def plan_leaves(situation: plan.Situation) -> Sequence[plan.Evict]:
    """Return the evictions whose summaries to prepare next in the background, oldest first."""
    if not is_due(situation):
        return ()
    settings = situation.summaries
    candidates, fixed = plan.split_atoms(situation)
    first = sum(count for _, count in plan.prepared_leaves(situation))
    tail = _tail_length(situation, (*candidates, *fixed))
    waiting = candidates[first : max(first, len(candidates) + len(fixed) - tail)]
    # In the smallest windows nothing is left for messages: the newest has all the room.
    chunk_tokens = max(1, min(settings.leaf_chunk_tokens, int(situation.room_tokens * CHUNK_SHARE)))
    leaves: list[plan.Evict] = []
    left = _allowance(situation)
    all_tokens = sum(situation.tokens_of(message) for atom in waiting for message in atom.messages)
    covered = 0
    while waiting:
        count, tokens = _chunk_length(situation, waiting, chunk_tokens)
        atoms = waiting[:count]
        enough = sum(len(atom.messages) for atom in atoms) >= settings.leaf_min_fanout or tokens * 2 >= chunk_tokens
        if not enough or (count == len(waiting) and tokens < chunk_tokens * LAST_CHUNK_SHARE):
            break  # more may come
        target = max(plan.SUMMARY_LIMITS[0], min(settings.leaf_target_tokens, int(tokens * LEAF_SHARE)))
        left -= summary_price(tokens, target)
        if left < 0:
            break
        covered += tokens
        leaves.append(plan.Evict(tuple(atoms), atoms[-1].upto_seq + 1, (), target))
        waiting = waiting[count:]
    if left < 0 and not first and covered * 3 < all_tokens * 2:
        return ()  # to put them into the view would soon have to be followed by another new prefix
    return leaves


def _allowance(situation: plan.Situation) -> float:
    """Return what summaries may cost that the conversation does not need yet, in plain tokens."""
    if situation.nodes:
        return math.inf
    rows = situation.rows
    sizes = list(map(situation.tokens_of, rows))
    fixed = sum(part.tokens for part in situation.certificate.segments if part.name in plan.FIXED)
    spent = spent_on(sizes, [row.role == "assistant" for row in rows], fixed=fixed)
    paid = sum(summary_price(_source_tokens(situation, node), node.tokens) for node in situation.prepared)
    return WASTE_SHARE * spent + WRITE_PRICE * fixed - paid


def _source_tokens(situation: plan.Situation, node: SummaryNode) -> int:
    """Return the tokens of the rows in view that a node stands for."""
    first, last = node.from_message_seq, node.upto_message_seq
    return sum(situation.tokens_of(row) for row in situation.rows if first <= row.seq <= last)


def _tail_length(situation: plan.Situation, atoms: Sequence[Atom]) -> int:
    """Return how many of the newest atoms get no prepared summary: always the newest, and older ones within the limits.
    By default enough that after another run as large as the largest in view, they are what an eviction keeps."""
    settings, room = situation.summaries, situation.room_tokens
    most = settings.fresh_tail_tokens
    if most is None:
        most = max(int(room * plan.KEEP_SHARE) - _largest_run(situation), int(room * TAIL_SHARE))
    messages = tokens = 0
    for length, atom in enumerate(reversed(atoms)):
        messages += len(atom.messages)
        tokens += sum(map(situation.tokens_of, atom.messages))
        if length and (messages > settings.fresh_tail_messages or tokens > most):
            return length
    return len(atoms)


def _chunk_length(situation: plan.Situation, atoms: Sequence[Atom], chunk_tokens: int) -> tuple[int, int]:
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
