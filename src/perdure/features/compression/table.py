"""A table as text, without what its columns repeat. One column is a list of cells; `write` and `read` are inverse.

    same {"svc":"api"}            columns with one value only
    empty {"level":"INFO"}        what an empty cell of a column means
    above ["ts"]                  a cell that begins with `:` or `/` goes on where the cell above has its last one
    terms {"*1":"a long value"}   numbered values
    from {"url":"http://x/{id}"}  columns made from another one
    cols ts,level,id              the columns; their separator is that of the rows too
    2026-11-03T00:00:33Z,,1

A cell is JSON if it reads as JSON, else it is a string as it stands; `~` says that the field is absent.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from typing import Any

from pydantic_core import to_json

from perdure.core.text.json_strings import json_or
from perdure.features.compression.constants import ABOVE_SHARE, DEFAULT_SHARE, TERM_CHARS, TERM_SHARE

TABLE_NOTE = "one line per row; an empty cell has the column's value under `empty`"
MISSING_CELL = "~"
SEPARATORS = (",", "|", "\t")
BOUNDARIES = ":/"
"""After one of these a cell may differ from the one above, see `above`."""

_SCALAR = r"-?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Infinity)|NaN|true|false|null"
_NOT_PLAIN = re.compile(rf'(?m)^(?:["\[{{*~].*|{_SCALAR})$')
_NOT_TEXT = re.compile(r'(?m)^["*]')
_WORD_SIGN = re.compile(r"[\w.@+-]")
_ODD = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")


def has_odd_signs(text: str) -> bool:
    """Return whether a text has characters that break lines or are not UTF-8: controls, separators, lone surrogates."""
    return _ODD.search(text) is not None


class MissingField:
    """Stands for a field that a row does not have."""

    __slots__ = ()


MISSING = MissingField()


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_encode_ascii = json.JSONEncoder(separators=(",", ":")).encode


def dump(value: Any) -> str:
    """Return a value as compact JSON in one line; characters that `has_odd_signs` finds are escaped."""
    text = _encode(value)
    return _encode_ascii(value) if _ODD.search(text) else text


def write_values(values: Sequence[Any]) -> list[str]:
    """Return the cells of a column of JSON values, `MISSING` among them; `read_values` undoes it."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return write_strings(values)
    if kinds <= {int, float, bool, type(None)}:
        return _encode_ascii(list(values))[1:-1].split(",") if values else []
    rare = kinds & {MissingField, type(None)}
    if rare and kinds - rare == {str}:
        strings = iter(write_strings([value for value in values if isinstance(value, str)]))
        return [next(strings) if isinstance(v, str) else MISSING_CELL if v is MISSING else "null" for v in values]
    if MissingField in kinds:
        present = iter(write_values([value for value in values if value is not MISSING]))
        return [MISSING_CELL if value is MISSING else next(present) for value in values]
    return [_nested(value) if isinstance(value, (dict, list)) else _cell(value) for value in values]


def _nested(value: Any) -> str:
    """Return a list or object as compact JSON, as `dump` does but ten times as fast."""
    try:
        text = to_json(value, inf_nan_mode="constants").decode()
    except ValueError:  # a lone surrogate
        return dump(value)
    return dump(value) if _ODD.search(text) else text


def write_strings(values: Sequence[str]) -> list[str]:
    """Return the cells of a column of strings in which a cell that reads as JSON is quoted."""
    joined = "\n".join(values)
    odd, lines = _ODD.search(joined) is not None, joined.count("\n") >= len(values)
    if not odd and not lines and not _NOT_PLAIN.search(joined):
        return list(values)
    quote = _encode_ascii if odd else _encode
    # Where most cells are quoted, all are, so that the column is read as one.
    if lines and sum(["\n" in value for value in values]) > len(values) / 2:
        return list(map(quote, values))
    cells = [_cell(value) for value in values]
    return list(map(quote, values)) if sum(map(str.startswith, cells, repeat('"'))) > len(cells) / 2 else cells


def write_texts(values: Sequence[str]) -> list[str]:
    """Return the cells of a column in which all cells are strings, so that numbers need no quotes."""
    joined = "\n".join(values)
    if joined.count("\n") == len(values) - 1 and not _NOT_TEXT.search(joined) and not _ODD.search(joined):
        return list(values)
    return [
        dump(value) if _NOT_TEXT.search(value) or "\n" in value or _ODD.search(value) else value for value in values
    ]


def _cell(value: Any) -> str:
    """Return the cell of one value: a string as it is if it does not read as JSON, else JSON."""
    if value is MISSING:
        return MISSING_CELL
    if isinstance(value, str) and "\n" not in value and not _NOT_PLAIN.search(value) and not _ODD.search(value):
        return value
    return dump(value)


def read_values(cells: Sequence[str]) -> list[Any]:
    """Return the values from which `write_values` made these cells."""
    if not _NOT_PLAIN.search("\n".join(cells)):
        return list(cells)
    missing = MISSING_CELL in cells
    parts = ["null" if cell == MISSING_CELL else cell for cell in cells] if missing else cells
    values = json_or(f"[{','.join(parts)}]", [])
    if len(values) != len(cells):
        plain = [cell if cell == MISSING_CELL or not _NOT_PLAIN.search(cell) else json.loads(cell) for cell in cells]
        return [MISSING if cell == MISSING_CELL else value for cell, value in zip(cells, plain, strict=True)]
    return [MISSING if c == MISSING_CELL else v for c, v in zip(cells, values, strict=True)] if missing else values


@dataclass(frozen=True, slots=True)
class Columns:
    """Named columns of cells, all of one length, which `len` returns."""

    names: list[str]
    cells: list[list[str]]

    def __len__(self) -> int:
        return len(self.cells[0]) if self.cells else 0

    def take(self, rows: Sequence[int]) -> Columns:
        """Return the table with only these rows, by their numbers from 0."""
        return Columns(self.names, [[column[row] for row in rows] for column in self.cells])


def write(table: Columns, *, keep_order: bool = False) -> list[str]:
    """Return the lines of a table, in this module's format; `keep_order`: columns are read back in their order."""
    same: dict[str, str] = {}
    empty: dict[str, str] = {}
    above: list[str] = []
    made: dict[str, str] = {}
    terms: dict[str, str] = {}
    names: list[str] = []
    columns: list[list[str]] = []
    for name, cells in zip(table.names, table.cells, strict=True):
        counts = Counter(cells)
        if len(counts) == 1 and len(cells) > 1:
            same[name] = cells[0]
        elif (rule := _made_from(cells, counts, names, columns, made)) is not None:
            made[name] = rule
        else:
            names.append(name)
            columns.append(cells)
    rows = len(table)
    written: list[list[str]] = []
    for name, cells in zip(names, columns, strict=True):
        counts = Counter(cells)
        top, count = counts.most_common(1)[0]
        if count >= max(2, DEFAULT_SHARE * rows):
            empty[name] = top
            cells = ["" if cell == top else cell or '""' for cell in cells]
        elif (shorter := _without_above(cells)) is not None:
            above.append(name)
            cells = shorter
        if len(counts) <= TERM_SHARE * rows and sum(map(len, cells)) >= TERM_CHARS * rows * TERM_SHARE:
            cells = _number_terms(cells, terms)
        written.append(cells)
    everything = "\n".join(map("\n".join, written))
    separator = next((one for one in SEPARATORS if one not in everything), "\t")
    if separator == "\t":
        written = [[dump(cell) if "\t" in cell else cell for cell in col] for col in written]
    options = (("same", same), ("empty", empty), ("above", above), ("terms", terms), ("from", made))
    lines = [f"{word} {dump(option)}" for word, option in options if option]
    if keep_order and [*same, *made] and table.names != [*same, *made, *names]:
        lines.append(f"order {dump(table.names)}")
    cells = [name if _NAME.fullmatch(name) else json.dumps(name) for name in names]
    lines.append(f"cols {separator.join(cells)}")
    if names:
        lines += map(separator.join, zip(*written, strict=True))
    return lines


def read(lines: Iterator[str], rows: int) -> Columns:
    """Return the table of so many rows that the next lines hold, as `write` wrote them."""
    options: dict[str, Any] = {"same": {}, "empty": {}, "above": [], "terms": {}, "from": {}, "order": None}
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "cols":
            break
        options[word] = json.loads(rest)
    separator = next((one for one in SEPARATORS if one in _QUOTED.sub("", rest)), "\t")
    names = [json.loads(name) if name.startswith('"') else name for name in _split_names(rest, separator)]
    taken = [next(lines) for _ in range(rows)] if names else []
    split = [row.split(separator) for row in taken] if len(names) > 1 else [[row] for row in taken]
    columns = dict(zip(names, (list(column) for column in zip(*split, strict=True)), strict=True))
    for name, cells in columns.items():
        if terms := options["terms"]:
            columns[name] = cells = [terms.get(cell, cell) for cell in cells]
        if (default := options["empty"].get(name)) is not None:
            columns[name] = ["" if cell == '""' else cell or default for cell in cells]
        elif name in options["above"]:
            columns[name] = list(accumulate(cells, with_above))
    for name, cell in options["same"].items():
        columns[name] = [cell] * rows
    for name, rule in options["from"].items():
        before, source, after = json.loads(rule)
        columns[name] = [f"{before}{cell}{after}" for cell in columns[source]]
    order = options["order"] or [*options["same"], *options["from"], *names]
    return Columns(order, [columns[name] for name in order])


_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME = re.compile(r'[^",|\t\x00-\x1f\ud800-\udfff]+')


def _split_names(text: str, separator: str) -> list[str]:
    """Split a line of names at separators outside quotes."""
    if '"' not in text:
        return text.split(separator) if text else []
    return re.findall(rf'"(?:[^"\\]|\\.)*"|[^"{re.escape(separator)}]+', text)


def _made_from(
    cells: list[str], counts: Counter[str], names: list[str], columns: list[list[str]], made: dict[str, str]
) -> str | None:
    """Return the rule [text before, name, text after] by which each cell is made from that of another column, as JSON.

    None: there is no such column.

    Args:
        counts: cell -> how often it occurs.
        names, columns: the columns that are written in full so far.
        made: name -> rule of the columns that have one.
    """
    first = cells[0]
    if len(first) < 3 or len(counts) * 2 < len(cells) or len(made) > 40:
        return None
    for name, column in zip(names, columns, strict=True):
        other = column[0]
        start = first.find(other) if other and other != MISSING_CELL else -1
        if start < 0 or len(cells) < 2:
            continue
        before, after = first[:start], first[start + len(other) :]
        # A word stays whole, so that what stands in the original can be found as it stands there.
        if _WORD_SIGN.match(before[-1:]) or _WORD_SIGN.match(after[:1]):
            continue
        if all(cell == before + source + after for cell, source in zip(cells, column, strict=True)):
            return dump([before, name, after])
    return None


def _without_above(cells: list[str]) -> list[str] | None:
    """Return the cells without what they share with the cell above, up to a boundary; None: too few share anything."""
    boundaries = [one for one in BOUNDARIES if one in cells[0] or one in cells[-1]]
    if not boundaries or any(cell[:1] in BOUNDARIES for cell in cells):
        return None
    forms: list[list[str]] = []
    for boundary in boundaries:
        heads = [cell.rpartition(boundary)[0] for cell in cells]
        goes_on = [False, *(bool(head) and head == above for above, head in pairwise(heads))]
        if sum(goes_on) >= ABOVE_SHARE * len(cells):
            parts = zip(cells, heads, goes_on, strict=True)
            forms.append([cell[len(head) :] if shared else cell for cell, head, shared in parts])
    return min(forms, key=lambda form: sum(map(len, form)), default=None)


def with_above(above: str, cell: str) -> str:
    """Return a whole cell; one that begins with a boundary mark begins as the cell above, up to its last such mark."""
    return above.rpartition(cell[0])[0] + cell if cell and cell[0] in BOUNDARIES else cell


def _number_terms(cells: list[str], terms: dict[str, str]) -> list[str]:
    """Return the cells with a number such as `*1` for each long one that repeats; `terms` gains number -> cell."""
    numbers: dict[str, str] = {}
    for cell, count in Counter(cells).items():
        if count > 1 and len(cell) >= TERM_CHARS:
            numbers[cell] = f"*{len(terms) + 1}"
            terms[numbers[cell]] = cell
    return [numbers.get(cell, cell) for cell in cells]
