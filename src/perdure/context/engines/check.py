"""What Perdure demands of a plan before it carries it out, whoever made it.

A plan is rebuilt from the situation's own rows and nodes, so nothing of what an engine returned is stored but numbers
and its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from perdure.context.engines.sliding_window import tokens_leaving
from perdure.context.sections.stubs import row_tokens, stub_chars
from perdure.context.window import plan as plans
from perdure.context.window.atoms import atoms
from perdure.core.errors import PerdureError
from perdure.core.messages import Message
from perdure.core.nodes import SummaryNode

T = TypeVar("T", Message, SummaryNode)


class PlanRefused(PerdureError):
    """A plan of a context engine that can't be carried out."""


def check_plan(situation: plans.Situation, plan: object) -> plans.Plan:
    """Return the plan that an engine returned, rebuilt from what the situation holds. Raises: PlanRefused. A plan cuts
    between atoms, takes only what a model has answered, keeps the run's input, and makes the view smaller."""
    match plan:
        case plans.Evict():
            return _check_evict(situation, plan)
        case plans.Merge():
            return _check_merge(situation, plan)
        case plans.Stub():
            return _check_stub(situation, plan)
        case _:
            raise PlanRefused(f"it returned {type(plan).__name__}: a plan is Evict, Merge or Stub")


def _check_evict(situation: plans.Situation, plan: plans.Evict) -> plans.Evict:
    """Return the eviction, rebuilt from the situation's rows and nodes. Raises: PlanRefused."""
    candidates, fixed = plans.split_atoms(situation)
    leaving = candidates[: len(plan.atoms)]
    named = _numbers([message for atom in plan.atoms for message in atom.messages])
    if named != _numbers(plans.messages_of(leaving)):
        unseen = _numbers(plans.messages_of(fixed))
        if set(named) & set(unseen):
            raise PlanRefused(f"it evicts message {min({*named} & {*unseen})}, which no model has answered yet")
        raise PlanRefused("what it evicts is not the oldest messages in view, cut where calls have all their results")
    rows = [*situation.pinned, *plans.messages_of(leaving)]
    pinned = _own_values(_numbers(plan.pinned), rows, "it pins a message that is not among those that leave")
    stay = {message.seq for message in pinned}
    needed = {message.seq for message in plans.input_rows(situation)} & set(_numbers(rows))
    if not needed <= stay:
        raise PlanRefused(f"message {min(needed - stay)} leaves, which the run answers")
    if any(set(_numbers(atom.messages)) & stay and not set(_numbers(atom.messages)) <= stay for atom in atoms(rows)):
        raise PlanRefused("it pins a part of a call and its results")
    prepared = _own_values(
        [node.seq for node in plan.prepared], situation.prepared, "it takes a summary that is not prepared"
    )
    absorbed = _own_values(
        [node.seq for node in plan.absorbed], situation.nodes, "it absorbs a summary that is not in view"
    )
    if absorbed != situation.nodes[len(situation.nodes) - len(absorbed) :]:
        raise PlanRefused("it absorbs other summaries than the newest")
    if prepared and (absorbed or not _covers(prepared, plans.messages_of(leaving))):
        raise PlanRefused("the prepared summaries stand for other messages than those that leave")
    if not leaving and absorbed:
        raise PlanRefused("it absorbs summaries without evicting a message")
    limit, spent = plan.summary_tokens, 0
    if prepared:
        spent = sum(node.tokens + plans.NODE_OVERHEAD for node in prepared)
    elif leaving:
        _check_limit(situation, limit, plan.text)
        spent = limit + plans.NODE_OVERHEAD
    _check_gain(tokens_leaving(situation, leaving, absorbed, stay=stay), spent)
    removal = plans.evict_atoms(
        situation, leaving, limit if leaving else 0, stay=stay, prepared=prepared, absorbed=absorbed
    )
    return replace(removal, text=plan.text)


def _check_merge(situation: plans.Situation, plan: plans.Merge) -> plans.Merge:
    """Return the merge, rebuilt from the situation's nodes. Raises: PlanRefused."""
    nodes = _own_values([node.seq for node in plan.nodes], situation.nodes, "it merges a summary that is not in view")
    seqs = [node.seq for node in situation.nodes]
    first = seqs.index(nodes[0].seq) if nodes else 0
    if not nodes or nodes != situation.nodes[first : first + len(nodes)]:
        raise PlanRefused("it merges no summaries, or summaries that are not neighbours")
    merge = plans.Merge(nodes, plan.summary_tokens, text=plan.text)
    if plan.prepared:
        prepared = _own_values(
            [node.seq for node in plan.prepared], situation.prepared, "it takes a summary that is not prepared"
        )
        if [(node.level, node.children) for node in prepared] != [(merge.level, merge.children)]:
            raise PlanRefused("the prepared summary stands for other summaries than those that it merges")
        return replace(merge, prepared=prepared, text=None)
    _check_limit(situation, plan.summary_tokens, plan.text)
    overhead = plans.NODE_OVERHEAD * (len(nodes) - 1)
    _check_gain(sum(node.tokens for node in nodes) + overhead, plan.summary_tokens)
    return merge


def _check_stub(situation: plans.Situation, plan: plans.Stub) -> plans.Stub:
    """Return the stubs, with those that the situation has already. Raises: PlanRefused."""
    if not situation.can_open:
        raise PlanRefused("it cuts a message, but the agent has no tool to open the rest")
    rows = {message.seq: message for message in (*situation.pinned, *situation.rows)}
    stubs = dict(situation.stubs)
    for seq, chars in dict(plan.stubs).items():
        if situation.stubs.get(seq) == chars:
            continue
        if seq not in rows or type(chars) is not int or not 0 <= chars < stub_chars(rows[seq]):
            raise PlanRefused(f"it shows {chars!r:.40} characters of message {seq!r:.40}, which has no such stub")
        stubs[seq] = chars
    changed = [rows[seq] for seq, chars in stubs.items() if situation.stubs.get(seq) != chars]
    before = sum(map(situation.tokens_of, changed))
    _check_gain(before, sum(row_tokens(row, stubs, situation.counter) for row in changed))
    sent = any(row.run_seq != situation.run_seq or row.seq <= situation.sent_upto for row in changed)
    return plans.Stub(stubs, sent=sent)


def _numbers(rows: Sequence[Message]) -> list[int]:
    return [row.seq for row in rows]


def _own_values(seqs: Sequence[int], known: Sequence[T], problem: str) -> tuple[T, ...]:
    """Return the rows or nodes of `known` with these numbers, in their order. Raises: PlanRefused, with `problem`."""
    own = tuple(one for one in known if one.seq in seqs)
    if len(own) != len(seqs):
        raise PlanRefused(problem)
    return own


def _covers(nodes: Sequence[SummaryNode], rows: Sequence[Message]) -> bool:
    """Whether the nodes stand for all of these rows and for no others that are in view."""
    spans = [(node.from_message_seq, node.upto_message_seq) for node in nodes]
    edges = bool(rows) and spans[0][0] <= rows[0].seq and spans[-1][1] == rows[-1].seq
    return edges and all(any(first <= row.seq <= last for first, last in spans) for row in rows)


def _check_limit(situation: plans.Situation, limit: object, text: object) -> None:
    """Check the size of a new summary, and its text if the engine wrote it. Raises: PlanRefused."""
    if type(limit) is not int or not 0 < limit <= situation.certificate.budget_tokens:
        raise PlanRefused(f"summary_tokens is {limit!r:.40}: a whole number of tokens, within the budget, is needed")
    if text is None:
        return
    if not isinstance(text, str) or not text.strip():
        raise PlanRefused("its summary has no text")
    if (tokens := situation.counter.count(text)) > limit:
        raise PlanRefused(f"its summary has {tokens} tokens, more than the {limit} of its summary_tokens")


def _check_gain(freed: int, spent: int) -> None:
    """Check that a plan frees more tokens of the view than it adds. Raises: PlanRefused."""
    if freed <= spent:
        raise PlanRefused(f"it frees {freed} tokens and takes {spent}: the view would not become smaller")
