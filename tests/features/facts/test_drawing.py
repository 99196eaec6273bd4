"""The places of a drawn network: the same each time, apart from each other, near what they are connected with."""

from __future__ import annotations

import math
import time

import pytest

from perdure.features.facts.drawing import place_points


@pytest.mark.parametrize("count", [0, 1, 2, 3, 150])
def test_all_points_stand_within_the_square_and_apart(count: int) -> None:
    edges = [(number, number // 3) for number in range(1, count)]
    places = place_points(count, edges)

    assert len(places) == count and places == place_points(count, edges)
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in places)
    near = [math.dist(one, other) for place, one in enumerate(places) for other in places[:place]]
    assert not near or min(near) > 0.005


def test_what_is_connected_is_nearer_than_what_is_not() -> None:
    """Two rings of six, with nothing between them."""
    edges = [(ring * 6 + number, ring * 6 + (number + 1) % 6) for ring in (0, 1) for number in range(6)]
    places = place_points(12, edges)
    inside = [math.dist(places[one], places[other]) for one, other in edges]
    between = [math.dist(one, other) for one in places[:6] for other in places[6:]]

    assert sum(inside) / len(inside) < sum(between) / len(between)


def test_the_largest_drawing_takes_little_time() -> None:
    began = time.process_time()
    place_points(150, [(number % 150, number * 7 % 150) for number in range(400) if number % 150 != number * 7 % 150])
    assert time.process_time() - began < 1.5
