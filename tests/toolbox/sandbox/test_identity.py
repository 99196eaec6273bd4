"""Which user ids calls get, whatever ids the machine or container has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.toolbox.sandbox.inside.identity import free_range, identity_map

WHOLE = [(0, 0, 4_294_967_295)]


def test_a_whole_machine_gives_ids_above_all_that_are_in_use() -> None:
    """Above users, services, and what containers and namespaces are given."""
    first = free_range(WHOLE, 20, number=12_345)

    assert 0x7000_0000 <= first < 0x8000_0000


@given(st.integers(0, 1 << 22), st.integers(1, 200))
def test_two_servers_have_no_id_in_common(number: int, count: int) -> None:
    first, second = (free_range(WHOLE, count, number=one) for one in (number, number + 1))

    assert first + count <= second or second + count <= first


@given(st.integers(100, 1 << 20), st.integers(1, 50), st.integers(0, 1 << 22))
def test_a_container_gives_the_last_of_its_own(length: int, count: int, number: int) -> None:
    """Those that nobody in it is likely to have."""
    first = free_range([(0, 100_000, length)], count, number=number)

    assert length - count <= first + count <= length


def test_too_few_ids_are_told() -> None:
    with pytest.raises(ValueError, match="only 1 user ids are mapped here"):
        free_range([(0, 1000, 1)], 10, number=1)


def test_a_map_onto_itself_keeps_every_extent() -> None:
    assert identity_map([(0, 1000, 1), (1, 100_000, 65_536)]) == [(0, 0, 1), (1, 1, 65_536)]
