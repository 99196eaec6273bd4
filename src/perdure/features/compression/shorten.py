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
"""How many of a column's values a summary of left-out rows names."""
SUMMARY_CHARS = 40


@dataclass(frozen=True, slots=True)
class Compressed:
    """A text as the model sees it.

    Args:
        text: what is shown.
        original: the whole text.
        handle: what opens the original, in `text`; None: nothing was left out.
        kind: the name of the kind of text that it was found to be; empty: `text` is unchanged.
        form: `whole` (unchanged), `lossless` or `short`.
    """

    text: str
    original: str
    handle: str | None = None
    kind: str = ""
    form: Literal["whole", "lossless", "short"] = "whole"


@dataclass(frozen=True, slots=True)
class TokenRoom:
    """The most tokens of a shortened text, the function that counts them, and the handle that opens the original."""

    tokens: int
    count: Callable[[str], int]
    handle: str

    def part(self, share: float) -> TokenRoom:
        """Return a room with a fraction (0 to 1) of the tokens."""
        return TokenRoom(int(self.tokens * share), self.count, self.handle)


def shorten_table(table: Columns, room: TokenRoom) -> list[str] | None:
    """Return a shortened table as lines, with rows numbered from 1; None: nearly all are always shown."""
    shown = sorted(shown_rows(table))
    left_out = sorted(set(range(len(table))) - set(shown))
    if len(shown) > 0.7 * len(table):
        return None
    whole = table.take(shown)
    lines = [
        f"{len(shown)} of {len(table)} rows in full",
        *write(Columns(["row", *whole.names], [[str(row + 1) for row in shown], *whole.cells])),
        f"left out: {len(left_out)} rows; their columns:",
        *_summaries(table, left_out),
    ]
    used = room.count("\n".join(lines))
    identifying = index_columns(table)
    while identifying:
        index = _index(table, sorted(identifying), left_out)
        if used + room.count("\n".join(index)) <= room.tokens:
            return lines + index
        identifying.pop()
    return lines


def _summaries(table: Columns, rows: Sequence[int]) -> list[str]:
    """Return a line for each column that says what these rows have in it."""
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
    """Return the beginning of a cell."""
    return cell if len(cell) <= SUMMARY_CHARS else f"{cell[:SUMMARY_CHARS]}…"


def _index(table: Columns, columns: Sequence[int], rows: Sequence[int]) -> list[str]:
    """Return lines with the identifying cells of rows, several to a line, which begins with a row's number."""
    lines = [f"by row, {dump([table.names[column] for column in columns])}:"]
    entries = [",".join([table.cells[column][row] for column in columns]) for row in rows]
    starts = range(0, len(rows), INDEX_PER_LINE)
    return lines + [f"{rows[start] + 1}: {' '.join(entries[start : start + INDEX_PER_LINE])}" for start in starts]


class Family:
    """A kind of text, with inverse `encode` and `decode`, and `shorten`. `name`, `note`: for a form's first line."""

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
        """Return the lossless form of what `parse` returned; None: there is none."""
        return None

    def decode(self, body: str) -> Any:
        """Return what `encode` made this text from. Raises: ValueError: the kind has no lossless form."""
        raise ValueError(f"a text of the kind {self.name} has no lossless form")

    def equals(self, text: str, parsed: Any, decoded: Any) -> bool:
        """Return whether what was decoded is what the text, or its parsed form, says."""
        return bool(text == decoded)

    def shorten(self, parsed: Any, room: TokenRoom) -> str | None:
        """Return what `parse` returned as a shorter text for a room; None: there is no such form."""
        return None
