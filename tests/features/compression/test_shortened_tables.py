"""A shortened table: its numbers of rows lead to the rows, and its counts add up."""

from __future__ import annotations

import re

from perdure.features.compression.shorten import TokenRoom, shorten_table
from perdure.features.compression.table import Columns

ROWS, STATES = 80, 8
NAMES = [f"pod-{row}-x{row * 7919 % 97}" for row in range(ROWS)]
TABLE = Columns(["name", "state"], [NAMES, [f"s{row % STATES}" for row in range(ROWS)]])


def shortened() -> list[str]:
    lines = shorten_table(TABLE, TokenRoom(5_000, len, "msg-1"))
    assert lines is not None
    return lines


def test_the_number_before_each_line_of_the_index_is_that_of_its_row() -> None:
    """Rows count from 1."""
    lines = shortened()
    index = lines[next(place for place, line in enumerate(lines) if line.startswith("by row")) + 1 :]
    found = [re.match(r"(\d+): (\S+)", line) for line in index]

    assert found
    for entry in found:
        assert entry is not None and entry[2].split(",")[0] == TABLE.cells[0][int(entry[1]) - 1]


def test_values_that_are_not_named_are_counted() -> None:
    """Of a column with more values than are shown."""
    (line,) = [line for line in shortened() if line.startswith("state: ")]

    assert line.count(" x") + int(re.search(r"(\d+) other values", line + ", 0 other values")[1]) == STATES  # type: ignore[index]
