"""Markdown tables of rows, and of CSV."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence

DELIMITERS = ",;\t|"
SAMPLE_LINES = 30
_NAMED_DELIMITER = re.compile(r"\ufeff?\"?sep=(\\t|[^\n\"])\"?\n", re.IGNORECASE)  # how spreadsheets name it
# With a quote or a unit behind it; or a comma in words, which a space follows.
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])-?\d[\d.  ]*,\d+(?=[^\d,;\t|]{0,6}(?:[;\t|]|$))|, ")


def markdown_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table with the first row as head, all rows as wide as the widest; no lines without rows."""
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    width = max(map(len, cells), default=0)
    if not width:
        return []
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in cells]
    lines.insert(1, f"|{'---|' * width}")
    return lines


def has_outlier_rows(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a few rows are so much longer than the others that filling up the others costs too much."""
    width = max(map(len, rows), default=0)
    return width * len(rows) > 20 * sum(map(len, rows)) + 1_000


def csv_to_markdown(text: str, *, tabs: bool = False) -> tuple[str, str]:
    """Return the Markdown table of CSV, without blank rows, and a warning; if there is one the text is unchanged.

    Args:
        tabs: tabs separate cells; else the delimiter that divides the first lines most evenly.
    """
    named = _NAMED_DELIMITER.match(text)
    text_of_rows = text[named.end() :] if named else text
    text_of_rows = text_of_rows.replace("_x000D_", " ")  # an end of line, as workbooks write it
    delimiter = named[1].replace("\\t", "\t") if named else "\t" if tabs else _delimiter(text)
    try:
        rows = [row for row in csv.reader(io.StringIO(text_of_rows, newline=""), delimiter=delimiter) if any(row)]
    except csv.Error as error:
        return text, f"it could not be read as a table ({error}), so its lines are as they were"
    if has_outlier_rows(rows):
        return text, "a few of its rows are far longer than the others, so its lines are as they were"
    lines = markdown_table(rows)
    return "\n".join(lines) + "\n" if lines else "", ""


def _delimiter(text: str) -> str:
    """The delimiter that gives most of the first rows the same number of cells, more than one."""
    sample = [line for line in text[:100_000].split("\n", SAMPLE_LINES)[:SAMPLE_LINES] if line.strip()]
    best, best_score = ",", (0, 0)
    for delimiter in DELIMITERS:
        try:
            widths = Counter(len(row) for row in csv.reader(sample, delimiter=delimiter) if row)
        except csv.Error:
            continue
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
        if width > 1 and (count, width) > best_score:
            best, best_score = delimiter, (count, width)
    return _besides_decimal_commas(sample) or best if best == "," else best


def _besides_decimal_commas(sample: Sequence[str]) -> str:
    """Return the delimiter that all lines have equally often, if half of them have decimal commas; else empty."""
    for delimiter in ";\t|":
        counts = {line.count(delimiter) for line in sample}
        numbers = sum(_DECIMAL_COMMA.search(line) is not None for line in sample)
        if len(counts) == 1 and counts != {0} and 2 * numbers >= len(sample):
            return delimiter
    return ""
