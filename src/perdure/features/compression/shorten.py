"""A text as it is shown, what a kind of text is, and a table shortened: the rows that are always shown, what
identifies the others, and what their columns hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perdure.features.compression.constants import INDEX_PER_LINE, SURE_SHARE
from perdure.features.compression.interest import index_columns, numbers_of, shown_rows
from perdure.features.compression.table import Columns, dump, write

SUMMARY_VALUES = 5
SUMMARY_CHARS = 40


@dataclass(frozen=True, slots=True)
class Compressed:
    """A text as the model sees it.

    Args:
        text: what is shown.
        original: the whole text.
        handle: what opens the original, in `text`; None: nothing was left out.
        kind: what the text was found to be; empty: it stands as it is.
        form: `whole` (unchanged), `lossless` or `short`.
    """

    text: str
    original: str
    handle: str | None = None
    kind: str = ""
    form: Literal["whole", "lossless", "short"] = "whole"


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens that a shortened text should have, how they are counted, and the original's handle."""

    tokens: int
    count: Callable[[str], int]
    handle: str

    def part(self, share: float) -> Room:
        """Return a share of the room."""
        return Room(int(self.tokens * share), self.count, self.handle)


def shorten_table(table: Columns, room: Room, *, first: int = 1) -> list[str] | None:
    """Return the lines of a shortened table; None: nearly all rows are always shown.

    Args:
        first: the number of the first row.
    """
    shown = sorted(shown_rows(table))
    rest = sorted(set(range(len(table))) - set(shown))
    if len(shown) > 0.7 * len(table):
        return None
    whole = table.take(shown)
    lines = [
        f"{len(shown)} of {len(table)} rows in full",
        *write(Columns(["row", *whole.names], [[str(first + row) for row in shown], *whole.cells])),
        f"left out: {len(rest)} rows; their columns:",
        *_summaries(table, rest),
    ]
    used = room.count("\n".join(lines))
    wanted = index_columns(table)
    while wanted:
        index = _index(table, sorted(wanted), rest, first)
        if used + room.count("\n".join(index)) <= room.tokens:
            return lines + index
        wanted.pop()
    return lines


def _summaries(table: Columns, rows: Sequence[int]) -> list[str]:
    """Say for each column with several values what these rows have in it."""
    lines = []
    for name, column in zip(table.names, table.cells, strict=True):
        cells = [column[row] for row in rows]
        counts = Counter(cells)
        if len(set(column)) == 1:
            lines.append(f"{name} = {_clip(column[0])}")
        elif len(counts) <= SUMMARY_VALUES * 2 or counts.most_common(1)[0][1] > len(cells) / 2:
            top = ", ".join(f"{_clip(cell)} x{count}" for cell, count in counts.most_common(SUMMARY_VALUES))
            others = len(counts) - SUMMARY_VALUES
            lines.append(f"{name}: {top}" + (f", {others} other values" if others > 0 else ""))
        elif numbers := numbers_of(cells):
            values = list(numbers.values())
            mean = sum(values) / len(values)
            lines.append(f"{name}: {min(values):.10g} to {max(values):.10g}, mean {mean:.4g}")
        else:
            lines.append(f"{name}: {len(counts)} values, {_clip(cells[0])} to {_clip(cells[-1])}")
    return lines


def _clip(cell: str) -> str:
    return cell if len(cell) <= SUMMARY_CHARS else f"{cell[:SUMMARY_CHARS]}…"


def _index(table: Columns, columns: Sequence[int], rows: Sequence[int], first: int) -> list[str]:
    """Return the identifying cells of rows, several rows to a line after the number of the first."""
    lines = [f"by row, {dump([table.names[column] for column in columns])}:"]
    if len(columns) == 1:
        entries = [table.cells[columns[0]][row] for row in rows]
    else:
        entries = [",".join(table.cells[column][row] for column in columns) for row in rows]
    for start in range(0, len(rows), INDEX_PER_LINE):
        part = entries[start : start + INDEX_PER_LINE]
        lines.append(f"{first + rows[start]}: {' '.join(part)}")
    return lines


class Family:
    """One kind of text. `encode` and `decode` are inverse; `shorten` leaves out what is typical."""

    name = ""
    note = ""
    repeats = True
    """Whether such texts repeat a form, so that most of it is typical."""
    sure_share = SURE_SHARE
    """A form with at most this share of the text's characters has fewer tokens: they need not be counted."""

    def parse(self, text: str) -> Any | None:
        """Return what the text holds; None: it is of another kind."""
        raise NotImplementedError

    def encode(self, parsed: Any) -> str | None:
        """Return the lossless form; None: there is none."""
        return None

    def decode(self, body: str) -> Any:
        """Undo `encode`. Raises: ValueError: there is no lossless form."""
        raise ValueError(f"a text of the kind {self.name} has no lossless form")

    def equals(self, text: str, parsed: Any, decoded: Any) -> bool:
        """Whether what was decoded is what the text holds."""
        return bool(text == decoded)

    def shorten(self, parsed: Any, room: Room) -> str | None:
        """Return the text with what is always shown; None: nothing can be left out."""
        return None
