"""Which rows of a table are always shown: errors, outliers, rare values, change points, the first and the last."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from math import sqrt

from perdure.features.compression.constants import (
    CHANGE_WINDOW,
    EDGE_ROWS,
    ERROR,
    ERROR_ROOTS,
    INDEX_CHARS,
    INDEX_UNIQUE,
    NO_ERROR,
    RARE_DISTINCT,
    RARE_SHARE,
    SIGMAS,
)
from perdure.features.compression.table import MISSING_CELL, Columns

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
# Digits in groups of three or not, with a decimal point, and with a decimal comma; the unit may stand on either side.
_POINT, _COMMA = (
    re.compile(rf"[$€£¥]? ?([+-]?(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?:{mark}\d+)?(?:[eE][+-]?\d+)?) ?[A-Za-z%$€£¥]*")
    for group, mark in ((",", r"\."), (r"[.\u00a0 ]", ","))
)
_OF_NUMBERS = "+-0123456789., \u00a0"
LARGEST = 1e100
"""Larger numbers count as this one, whose square still is a float."""
_CODE = re.compile(r"[EF]\d{4}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d")


def numbers_of(cells: Sequence[str]) -> dict[int, float]:
    """Return row -> number of the cells that are numbers, with an optional unit; empty if too many cells are none."""
    return _numbers(cells, _POINT) or _numbers(cells, _COMMA)


def _numbers(cells: Sequence[str], form: re.Pattern[str]) -> dict[int, float]:
    """Return row -> number of the cells of a form, `_POINT` or `_COMMA`; empty if less than 80 % are of it."""
    found: dict[int, float] = {}
    least = 0.8 * len(cells)
    for row, cell in enumerate(cells):
        if match := form.fullmatch(cell.strip()):
            found[row] = max(-LARGEST, min(LARGEST, float(_plain(match[1], form))))
        elif row - len(found) > len(cells) - least:
            return {}
    return found if len(found) >= least else {}


def _plain(number: str, form: re.Pattern[str]) -> str:
    """Return a number of a form, `_POINT` or `_COMMA`, without groups and with a decimal point."""
    if form is _COMMA:
        number = number.replace(".", "").replace(" ", "").replace("\u00a0", "").replace(",", ".")
    return number.replace(",", "")


def plain_number(text: str) -> str | None:
    """Return the number in a text, without unit and groups, as Python writes it; None: the text is no number."""
    for form in (_POINT, _COMMA):
        if match := form.fullmatch(text):
            return _plain(match[1], form)
    return None


def mean_and_deviation(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation; (0, 0) for no values."""
    numbers = list(values)
    if not numbers:
        return 0.0, 0.0
    mean = sum(numbers) / len(numbers)
    return mean, sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))


def outliers(numbers: dict[int, float]) -> set[int]:
    """Return the rows whose number (row -> number) is more than `SIGMAS` deviations from the mean."""
    mean, deviation = mean_and_deviation(numbers.values())
    return {row for row, number in numbers.items() if deviation and abs(number - mean) > SIGMAS * deviation}


def change_points(numbers: dict[int, float]) -> set[int]:
    """Return the rows at which the mean of the numbers (row -> number) after differs from that of those before."""
    rows, values = list(numbers), list(numbers.values())
    deviation = mean_and_deviation(values)[1]
    if not deviation or len(values) < 4 * CHANGE_WINDOW or is_sequence(values):
        return set()
    sums = list(itertools.accumulate(values, initial=0.0))
    gaps = {
        at: abs(sums[at + CHANGE_WINDOW] - 2 * sums[at] + sums[at - CHANGE_WINDOW]) / CHANGE_WINDOW
        for at in range(CHANGE_WINDOW, len(values) - CHANGE_WINDOW + 1)
    }
    changes: set[int] = set()
    for at, gap in sorted(gaps.items(), key=lambda item: -item[1]):
        if gap <= SIGMAS * deviation * 0.75:
            break
        if all(abs(at - other) >= CHANGE_WINDOW for other in changes):
            changes.add(at)
    return {rows[at] for at in changes if at < len(rows)}


def is_sequence(values: Sequence[float]) -> bool:
    """Return whether the numbers never fall, or never rise."""
    pairs = list(itertools.pairwise(values))
    return all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs)


def rare_rows(cells: Sequence[str]) -> set[int]:
    """Return the rows of a column that have a rare value, if the column repeats its values; else none."""
    counts = Counter(cells)
    if len(counts) > RARE_DISTINCT * len(cells):
        return set()
    most = max(1, int(RARE_SHARE * len(cells)))
    rare = {cell for cell, count in counts.items() if count <= most}
    return {row for row, cell in enumerate(cells) if cell in rare} if rare else set()


def odd_rows(cells: Sequence[str], numbers: Collection[int]) -> set[int]:
    """Return the rows of a column with a rare unit, or with no number; `numbers` are the rows with a number."""
    units = [cell.strip(_OF_NUMBERS) if row in numbers else "?" for row, cell in enumerate(cells)]
    return rare_rows(units) if numbers else set()


def error_rows(cells: Sequence[str]) -> set[int]:
    """Return the rows of a column whose cell tells of an error."""
    distinct = set(cells)
    if not may_tell_error("\n".join(distinct)):
        return set()
    errors = {cell for cell in distinct if tells_error(cell)}
    return {row for row, cell in enumerate(cells) if cell in errors}


def may_tell_error(text: str) -> bool:
    """Return whether a text may tell of an error; quick, to pass over whole columns."""
    lowered = text.lower()
    return any(map(lowered.__contains__, ERROR_ROOTS)) or _CODE.search(text) is not None


def tells_error(text: str) -> bool:
    """Return whether a line or cell tells of an error."""
    return may_tell_error(text) and ERROR.search(text) is not None and ERROR.search(NO_ERROR.sub("", text)) is not None


def shown_rows(table: Columns) -> set[int]:
    """Return the rows of a table that are always shown: first and last, errors, outliers, rare values, changes."""
    count = len(table)
    rows = {*range(min(EDGE_ROWS, count)), *range(max(0, count - EDGE_ROWS), count)}
    for cells in table.cells:
        if len(set(cells)) == 1:
            continue
        numbers = numbers_of(cells)
        if not is_sequence(list(numbers.values())):
            rows |= outliers(numbers) | change_points(numbers)
        rows |= error_rows(cells) | rare_rows(cells) | odd_rows(cells, numbers)
    return rows


def index_columns(table: Columns) -> list[int]:
    """Return the numbers of the columns whose values tell rows apart, the shortest first; no times, no measures."""
    found: list[tuple[int, int]] = []
    for number, cells in enumerate(table.cells):
        if len(set(cells)) < INDEX_UNIQUE * len(cells) or MISSING_CELL in cells:
            continue
        size = sum(map(len, cells))
        if size > INDEX_CHARS * len(cells) or sum(1 for cell in cells if _TIME.search(cell)) > len(cells) / 2:
            continue
        if sum(1 for cell in cells if _NUMBER.fullmatch(cell)) > len(cells) / 2:
            continue
        found.append((size, number))
    return [number for _, number in sorted(found)]
