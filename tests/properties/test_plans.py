"""The plans that make room, as properties over random conversations: legal, smaller each time, and at an end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from perdure.context.sections.assemble import check_legal
from perdure.context.window.atoms import Atom, atoms
from perdure.context.window.plan import (
    KEEP_SHARE,
    LEAST_SUMMARY,
    NODE_OVERHEAD,
    SUMMARY_LIMITS,
    WORTH_TOKENS,
    Evict,
    Merge,
    Plan,
    Stub,
    plan,
    swap,
)
from perdure.core.errors import IrreducibleFloor
from perdure.core.messages import Text, ToolCall, ToolResult
from tests.support.cost_simulation import LARGE_GRAINS, ORDINARY_GRAINS, Policy, Simulation, Trace, random_trace
from tests.support.strategies import effort

POLICIES: tuple[Policy, ...] = ("product", "when full", "at 75 %")


class Watched(Simulation):
    """A conversation in which each plan is held against the promises before and after it is carried out."""

    def carry_out(self, found: Plan, reason: str) -> None:
        before = self.situation()
        event(type(found).__name__)
        shown = {message.seq for message in (*self.pinned, *self.rows)}
        nodes = {node.seq for node in self.nodes}
        if isinstance(found, Evict):
            self._check_cut(found)
            self._check_worth(found)
        if isinstance(found, Stub):
            self._check_stub(found)
        super().carry_out(found, reason)

        after = self.situation()
        assert after.certificate.tokens < before.certificate.tokens  # progress
        check_legal([*self.pinned, *self.rows])
        left = shown - {message.seq for message in (*self.pinned, *self.rows)}
        new = [node for node in self.nodes if node.seq not in nodes]
        if isinstance(found, Evict):  # what left stands behind the new summaries, or behind an older one
            assert all(
                any(node.from_message_seq <= seq <= node.upto_message_seq for node in self.nodes) for seq in left
            )
        if isinstance(found, Merge):
            merged = {node.seq for node in found.nodes}
            assert merged == nodes - {node.seq for node in self.nodes}
            assert [node.level for node in new] == [found.level]
        spans = [(node.from_message_seq, node.upto_message_seq) for node in self.nodes]
        assert spans == sorted(spans)
        assert all(last < first for (_, last), (first, _) in pairwise(spans))

    def _check_cut(self, found: Evict) -> None:
        """The cut is between two atoms, and neither the run's input nor what no model has seen leaves."""
        groups = atoms(self.rows)
        assert tuple(groups[: len(found.atoms)]) == found.atoms
        rows = [message for atom in groups[len(found.atoms) :] for message in atom.messages]
        assert rows[0].seq == found.from_seq
        stay = {row.seq for row in self.rows if row.run_seq == self.run_seq and row.seq > self.seen_upto}
        assert stay <= {row.seq for row in (*found.pinned, *rows)}

    def _check_worth(self, found: Evict) -> None:
        """More leaves than comes in its place, by what a rewritten prefix is worth; a last summary is a short one."""
        gone = {row.seq for row in (*self.pinned, *found.messages)} - {row.seq for row in found.pinned}
        freed = sum(self.situation().tokens_of(row) for row in (*self.pinned, *self.rows) if row.seq in gone)
        if found.prepared:
            assert freed >= sum(node.tokens + NODE_OVERHEAD for node in found.prepared) + WORTH_TOKENS
        elif found.atoms and found.summary_tokens != LEAST_SUMMARY:
            assert freed >= found.summary_tokens + WORTH_TOKENS

    def _check_stub(self, found: Stub) -> None:
        """Of results only those are cut that no model has answered: others leave."""
        changed = {seq for seq, chars in found.stubs.items() if self.stubs.get(seq) != chars}
        results = [row for row in (*self.pinned, *self.rows) if row.seq in changed and row.role == "tool"]
        assert all(row.run_seq == self.run_seq and row.seq > self.seen_upto for row in results)


@effort(few=8, many=2_000)
@given(st.integers(0, 10**9), st.sampled_from(POLICIES), st.sampled_from([ORDINARY_GRAINS, LARGE_GRAINS, LARGE_GRAINS]))
def test_plans_keep_calls_with_results_make_progress_and_end(
    seed: int, policy: Policy, grains: tuple[float, ...]
) -> None:
    """Whatever is said and returned: a request fits in the end, or a typed error says why it can't."""
    trace = random_trace(seed, grains=grains, calls_most=60)
    watched = Watched(trace, policy)
    try:
        for turn in trace.turns:
            watched.run(turn)
            situation = watched.situation()
            if situation.certificate.fits:
                assert plan(situation) is None
    except IrreducibleFloor as floor:
        event(f"floor: {floor.reason}")
        assert floor.reason in ("no_candidate", "floor_exceeds_target")
        assert sum(floor.sizes.values()) > floor.window_tokens - floor.reserve_tokens


Said = Text | ToolCall | ToolResult


class Talk(Simulation):
    """A conversation row by row, in a window of 4,000 tokens: 2,850 of them are room for messages."""

    def __init__(self, *runs: Sequence[Said | tuple[Said, ...]]) -> None:
        super().__init__(Trace(window_tokens=4_000, tools_tokens=0, system_tokens=0, turns=()), "product")
        for run in runs:
            self.run_seq += 1
            for place, part in enumerate(run):
                parts = part if isinstance(part, tuple) else (part,)
                is_result = isinstance(parts[0], ToolResult)
                self._add("tool" if is_result else "assistant" if place else "user", parts)

    def prepare(self, upto_seq: int, tokens: int) -> None:
        """Have a summary of the first rows ready."""
        rows = tuple(Atom((row,)) for row in self.rows if row.seq <= upto_seq)
        node = self._summarise(Evict(rows, upto_seq + 1, (), tokens))
        self.prepared.append(replace(node, tokens=tokens))


ROW = Text("x" * 90)
"""100 tokens with what is around it."""


@pytest.mark.parametrize("more", [-1, 0])
def test_a_prepared_summary_comes_in_when_that_is_worth_a_new_prefix(more: int) -> None:
    """To the token: it frees less than that, or as much."""
    talk = Talk([ROW] * 10, [ROW])
    talk.prepare(9, 10 * 100 - NODE_OVERHEAD - WORTH_TOKENS - more)

    assert (swap(talk.situation()) is not None) == (more == 0)


@pytest.mark.parametrize("old_tokens", range(100, 500, 33))
def test_an_eviction_that_frees_too_little_is_not_made_while_a_result_can_be_cut(old_tokens: int) -> None:
    """What is old makes room if its summary is worth it; else the newest results do."""
    old = Text("x" * (old_tokens - 10))
    call = (ToolCall("call-1", "work", "{}"),)
    talk = Talk([old], [ROW, call, ToolResult("call-1", "work", "r" * 2_800)])
    talk.sent_upto = talk.rows[-1].seq
    found = plan(talk.situation())

    least = SUMMARY_LIMITS[0] + WORTH_TOKENS
    assert isinstance(found, Evict if old_tokens >= least else Stub)


@pytest.mark.parametrize("over", [1, 50, 200])
def test_a_cut_frees_more_than_is_over(over: int) -> None:
    """By what a rewritten prefix is worth: the next few words need no other cut."""
    call = (ToolCall("call-1", "work", "{}"),)
    room = Talk().situation().room_tokens
    input_tokens = room - 900 + over
    talk = Talk([Text("x" * (input_tokens - 20)), call, ToolResult("call-1", "work", "r" * 890)])
    talk.sent_upto = talk.rows[-1].seq
    before = talk.situation().certificate
    assert before.over_tokens == over

    found = plan(talk.situation())
    assert isinstance(found, Stub)
    talk.carry_out(found, "window")
    assert before.tokens - talk.situation().certificate.tokens >= over + WORTH_TOKENS


@pytest.mark.parametrize(("seen_upto", "first_kept"), [(-1, 5), (4, 5), (9, 10)])
def test_nothing_leaves_that_no_model_has_answered(seen_upto: int, first_kept: int) -> None:
    """Though much more would have to; what was said in earlier runs may leave in any case."""
    talk = Talk([ROW] * 5, [ROW] * 30)
    talk.seen_upto = talk.sent_upto = seen_upto
    found = plan(talk.situation())

    assert isinstance(found, Evict)
    assert found.from_seq == first_kept


def test_a_cut_moves_to_a_run_that_begins_near_behind_it() -> None:
    """As far as half of what is kept; where none begins so near, it stays."""
    count = 40

    def first_kept(begins: int) -> int:
        """The first row that stays, if the second run begins with this one."""
        found = plan(Talk([ROW] * begins, [ROW] * (count - begins), [ROW]).situation())
        assert isinstance(found, Evict)
        return found.from_seq

    cut = first_kept(1)
    slack = int(Talk().situation().room_tokens * KEEP_SHARE / 2 / 100)

    assert 1 < cut < cut + slack < count - 2
    expected = {begins: begins if begins <= cut + slack else cut for begins in range(cut, count)}
    assert {begins: first_kept(begins) for begins in expected} == expected
