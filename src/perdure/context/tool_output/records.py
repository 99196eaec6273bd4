"""Rows of JSON objects as columns: nested objects, and lists of one length, become columns named by their path."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from perdure.context.tool_output.constants import LIST_WIDTH, ROWS_LEAST, SPARSE_COLUMNS, SPARSE_SHARE
from perdure.context.tool_output.table import MISSING, Columns, read_values, write_values

Path = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[^.\[\]\",|\t\x00-\x1f\ud800-\udfff]+")
_STEP = re.compile(r'\.?([^.\[\]"]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')


def path_name(path: Path) -> str:
    """Return a path as text: `spec.containers[0].image`, `labels["a.b"]`."""
    name = ""
    for step in path:
        if isinstance(step, int):
            name += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            name += f".{step}" if name else step
        else:
            name += f"[{json.dumps(step)}]"
    return name


def parse_path(name: str) -> Path:
    """Return the path that `path_name` made this text from."""
    steps: list[str | int] = []
    for key, index, quoted in _STEP.findall(name):
        steps.append(key or (int(index) if index else json.loads(quoted)))
    return tuple(steps)


def is_table(rows: Sequence[Any]) -> bool:
    """Return whether the items are objects that share most of their keys."""
    if len(rows) < ROWS_LEAST or set(map(type, rows)) != {dict} or not all(rows):
        return False
    return _is_dense(rows)


def _is_dense(rows: Sequence[dict[str, Any]]) -> bool:
    keys = set(chain.from_iterable(rows))
    filled = sum(map(len, rows))
    return filled >= (1 - SPARSE_SHARE) * len(keys) * len(rows) or len(keys) <= min(SPARSE_COLUMNS, len(rows))


def flatten(rows: Sequence[dict[str, Any]]) -> dict[Path, list[Any]]:
    """Return the values of the rows by path; `MISSING` where a row has none."""
    columns: dict[Path, list[Any]] = {}
    for key in dict.fromkeys(chain.from_iterable(rows)):
        _flatten_into(columns, (key,), [row.get(key, MISSING) for row in rows])
    return columns


def _flatten_into(columns: dict[Path, list[Any]], path: Path, values: list[Any]) -> None:
    kinds = set(map(type, values))
    if dict in kinds and kinds <= {dict, type(MISSING)}:
        rows = [{} if value is MISSING else value for value in values]
        if all(value is MISSING or value for value in values) and _is_dense([row for row in rows if row]):
            for key in dict.fromkeys(chain.from_iterable(rows)):
                _flatten_into(columns, (*path, key), [row.get(key, MISSING) for row in rows])
            return
    if kinds == {list}:
        width = len(values[0])
        if 0 < width <= LIST_WIDTH and all(len(value) == width for value in values):
            for index in range(width):
                _flatten_into(columns, (*path, index), [value[index] for value in values])
            return
    columns[path] = values


def unflatten(columns: dict[Path, list[Any]], rows: int) -> list[dict[str, Any]]:
    """Undo `flatten`."""
    tree: dict[str | int, Any] = {}
    for path, values in columns.items():
        node = tree
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = values
    return [{} if row is MISSING else row for row in _build(tree)] if tree else [{} for _ in range(rows)]


def _build(tree: dict[str | int, Any]) -> list[Any]:
    """Return the objects, or lists, that a tree of columns holds, row by row; `MISSING` for one without any value."""
    keys = list(tree)
    columns = [_build(node) if isinstance(node, dict) else node for node in tree.values()]
    if isinstance(keys[0], int):
        return list(map(list, zip(*columns, strict=True)))
    rows = [dict(zip(keys, values)) for values in zip(*columns)]  # noqa: B905  # `strict` would cost a tenth
    sparse = [(key, column) for key, column in zip(keys, columns, strict=True) if MISSING in column]
    for key, column in sparse:
        for row, value in zip(rows, column, strict=True):
            if value is MISSING:
                del row[key]
    if not sparse:
        return rows
    return [row or MISSING for row in rows]


def columns_of(rows: Sequence[dict[str, Any]]) -> Columns:
    """Return the cells of rows of objects."""
    flat = flatten(rows)
    return Columns([path_name(path) for path in flat], [write_values(values) for values in flat.values()])


def rows_of(table: Columns) -> list[dict[str, Any]]:
    """Undo `columns_of`."""
    values = {parse_path(n): read_values(c) for n, c in zip(table.names, table.cells, strict=True)}
    return unflatten(values, len(table))
