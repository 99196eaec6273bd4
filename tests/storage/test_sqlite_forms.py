"""How numbers are written for SQLite."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.storage.database.sqlite_forms import RUN_BITS, pack_runs
from tests.support.strategies import effort

NUMBERS = st.lists(st.integers(0, 40) | st.integers(0, 1 << 32), max_size=60)
LONGEST = 1 << RUN_BITS


def numbers_of(runs: list[int]) -> list[int]:
    return [number for run in runs for number in range(run >> RUN_BITS, (run >> RUN_BITS) + run % LONGEST + 1)]


@effort(60, 1000)
@given(NUMBERS)
def test_runs_stand_for_exactly_their_numbers(numbers: list[int]) -> None:
    """Each once and in order, whatever the order given."""
    assert numbers_of(pack_runs(numbers)) == sorted(set(numbers))


def test_a_run_that_is_too_long_for_its_bits_goes_on_in_another() -> None:
    """Nothing is lost at the edge, and as few runs are made as can be."""
    runs = pack_runs(range(3 * LONGEST))

    assert numbers_of(runs) == list(range(3 * LONGEST))
    assert len(runs) == 3
