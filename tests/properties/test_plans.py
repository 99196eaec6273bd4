"""The plans that make room, as properties over random conversations: legal, smaller each time, and at an end."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import event, given
from hypothesis import strategies as st

from perdure.context.request.assemble import check_legal
from perdure.context.window.atoms import atoms
from perdure.context.window.plan import Evict, Merge, Plan, plan
from perdure.core.errors import IrreducibleFloor
from tests.support.cost_simulation import LARGE_GRAINS, ORDINARY_GRAINS, Policy, Simulation, random_trace
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
