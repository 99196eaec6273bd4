"""Rows of cells as a Markdown table, one line each; and CSV, which is made one."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["cell_text", "csv_to_markdown", "is_wide_once", "markdown_table"]

DELIMITERS = ",;\t|"
SAMPLE_LINES = 30


def cell_text(text: str) -> str:
    """`text` as it may stand in a table: on one line, its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def markdown_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table whose head is the first row; all rows as wide as the widest. No rows, no lines."""
    cells = [[cell_text(cell) for cell in row] for row in rows]
    width = max(map(len, cells), default=0)
    if not width:
        return []
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in cells]
    lines.insert(1, f"|{'---|' * width}")
    return lines


def is_wide_once(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a few rows are far longer than the others, which would all be filled up to their width."""
    width = max(map(len, rows), default=0)
    return width * len(rows) > 20 * sum(map(len, rows)) + 1_000


def csv_to_markdown(text: str, *, tabs: bool = False) -> tuple[str, str]:
    """A table, and a warning; empty: it could be read. Text that can't is given back as it is. Blank rows are left out.

    Args:
        tabs: cells are told apart by tabs; else by what divides the first lines most evenly.
    """
    delimiter = "\t" if tabs else _delimiter(text)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
    except csv.Error as error:
        return text, f"it could not be read as a table ({error}), so its lines are as they were"
    if is_wide_once(rows):
        return text, "a few of its rows are far longer than the others, so its lines are as they were"
    lines = markdown_table(rows)
    return "\n".join(lines) + "\n" if lines else "", ""


def _delimiter(text: str) -> str:
    """What gives most of the first rows the same number of cells, and more than one."""
    sample = [line for line in text[:100_000].split("\n", SAMPLE_LINES)[:SAMPLE_LINES] if line.strip()]
    best, best_score = ",", (0, 0)
    for delimiter in DELIMITERS:
        try:
            widths = Counter(len(row) for row in csv.reader(sample, delimiter=delimiter) if row)
        except csv.Error:
            continue
        width, count = max(widths.items(), key=lambda it: (it[1], it[0]), default=(0, 0))
        if width > 1 and (count, width) > best_score:
            best, best_score = delimiter, (count, width)
    return best
