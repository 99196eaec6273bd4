"""Where the points of a drawn network stand: those that are connected near each other, the same at each look."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

ROUNDS = 90
GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))


def place_points(count: int, edges: Sequence[tuple[int, int]]) -> Sequence[tuple[float, float]]:
    """Return a position in the square from (0, 0) to (1, 1) for each of `count` points, the most important first;
    `edges`: pairs of point numbers from 0. By the method of Fruchterman and Reingold, which starts with a spiral."""
    if count < 2:
        return [(0.5, 0.5)] * count
    numbers = np.arange(count)
    # A place is a complex number: x + y i.
    places = np.sqrt((numbers + 0.5) / count) * np.exp(1j * numbers * GOLDEN_ANGLE)
    pull = np.zeros((count, count))
    for one, other in edges:
        pull[one, other] = pull[other, one] = 1.0
    ideal = 1.6 / math.sqrt(count)
    for step in range(ROUNDS):
        away = places[:, None] - places[None, :]
        distance = np.maximum(np.abs(away), 1e-3)
        force = ((ideal / distance) ** 2 - pull * distance / ideal) * away
        move = force.sum(axis=1) - 0.6 * places  # what nothing connects stays near the middle
        length = np.maximum(np.abs(move), 1e-6)
        places = places + move / length * np.minimum(length, 0.12 * (1 - step / ROUNDS))
    x, y = (side - side.min() for side in (places.real, places.imag))
    x, y = x / max(x.max(), 1e-6), y / max(y.max(), 1e-6)
    return list(zip(x.tolist(), y.tolist(), strict=True))
