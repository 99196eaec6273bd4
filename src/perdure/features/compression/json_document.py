"""JSON documents: compact JSON, with each list of like objects as a table and each long string as a text of its own.

    {"kind":"List","items":"@1"}
    @1 rows 300
    cols name,status.phase
    web-1,Running

Kinds of blocks: `rows` (a list of objects), `map` (an object of objects, under the column `(key)`), `matrix` (a list of
lists), `text` (a string), `json` (a string that is JSON itself). Nested objects, and lists of one length, become
columns named by their path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from math import isfinite
from typing import Any

from perdure.features.compression.constants import (
    LIST_WIDTH,
    MAP_LEAST,
    MATRIX_WIDTH,
    ROWS_LEAST,
    SPARSE_COLUMNS,
    SPARSE_SHARE,
    SURE_SHARE_JSON,
    TEXT_CHARS,
)
from perdure.features.compression.shorten import Family, TokenRoom, shorten_table
from perdure.features.compression.table import (
    MISSING,
    TABLE_NOTE,
    Columns,
    dump,
    has_odd_signs,
    read,
    read_values,
    write,
    write_values,
)

Path = tuple[str | int, ...]
"""Keys and indexes that lead from a value to one inside it."""

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
    return tuple(key or (int(index) if index else json.loads(quoted)) for key, index, quoted in _STEP.findall(name))


def is_table(rows: Sequence[Any]) -> bool:
    """Return whether the items are objects that share most of their keys."""
    if len(rows) < ROWS_LEAST or set(map(type, rows)) != {dict} or not all(rows):
        return False
    return _is_dense(rows)


def _is_dense(rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether a table of these objects would have few empty cells, or few columns."""
    keys = set(chain.from_iterable(rows))
    filled = sum(map(len, rows))
    return filled >= (1 - SPARSE_SHARE) * len(keys) * len(rows) or len(keys) <= min(SPARSE_COLUMNS, len(rows))


def flatten(rows: Sequence[dict[str, Any]], above: Path = ()) -> Iterator[tuple[Path, list[Any]]]:
    """Yield each path below `above`, nested keys too, with the values of all rows; `MISSING` where a row has none."""
    for key in dict.fromkeys(chain.from_iterable(rows)):
        yield from _flatten_values((*above, key), [row.get(key, MISSING) for row in rows])


def _flatten_values(path: Path, values: list[Any]) -> Iterator[tuple[Path, list[Any]]]:
    """Yield a path and its values; objects, and lists of one short length, as columns of their own."""
    kinds = set(map(type, values))
    if dict in kinds and kinds <= {dict, type(MISSING)}:
        rows = [{} if value is MISSING else value for value in values]
        if all(value is MISSING or value for value in values) and _is_dense([row for row in rows if row]):
            yield from flatten(rows, path)
            return
    if kinds == {list}:
        width = len(values[0])
        if 0 < width <= LIST_WIDTH and all(len(value) == width for value in values):
            for index in range(width):
                yield from _flatten_values((*path, index), [value[index] for value in values])
            return
    yield path, values


def unflatten(columns: dict[Path, list[Any]], rows: int) -> list[dict[str, Any]]:
    """Return the `rows` objects from which `flatten` made these columns."""
    tree: dict[str | int, Any] = {}
    for path, values in columns.items():
        node = tree
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = values
    return [{} if row is MISSING else row for row in _build(tree)] if tree else [{} for _ in range(rows)]


def _build(tree: dict[str | int, Any]) -> list[Any]:
    """Return row by row the objects, or lists, of a tree of columns; `MISSING` for a row without any value."""
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
    return [row or MISSING for row in rows] if sparse else rows


def columns_of(rows: Sequence[dict[str, Any]]) -> Columns:
    """Return objects as a table, with a column for each path."""
    flat = dict(flatten(rows))
    return Columns([path_name(path) for path in flat], [write_values(values) for values in flat.values()])


def rows_of(table: Columns) -> list[dict[str, Any]]:
    """Return the objects from which `columns_of` made this table."""
    values = {parse_path(n): read_values(c) for n, c in zip(table.names, table.cells, strict=True)}
    return unflatten(values, len(table))


STYLES: tuple[dict[str, Any], ...] = tuple(
    {"ensure_ascii": ascii_only, **layout}
    for layout in (
        {"separators": (", ", ": ")},
        {"separators": (",", ":")},
        {"indent": 2, "separators": (",", ": ")},
        {"indent": 4, "separators": (",", ": ")},
    )
    for ascii_only in (True, False)
)


def find_style(value: Any, text: str) -> int | None:
    """Return the number of the style in which the value is exactly this text; None: of none."""
    layouts = ((number, style) for number, style in enumerate(STYLES) if ("\n" in text) == ("indent" in style))
    return next((number for number, style in layouts if json.dumps(value, **style) == text), None)


KEY = "(key)"
"""The column with the keys of an object whose values are a table."""
EXACT_CHARS = 15
"""A decimal of at most so many characters is a float without loss."""
_REFERENCE = re.compile(r"@\d+")


@dataclass(slots=True)
class JsonDocument:
    """A parsed document.

    Args:
        value: what the text holds.
        root: the same, in which a string such as `@1` stands for the first block.
        blocks: pairs of a kind and its content: a table, or lines.
        keep_order: whether the order of keys counts, as it does if a string of it is JSON.
    """

    value: Any
    root: Any = None
    blocks: list[tuple[str, Columns | str]] = field(default_factory=list)
    keep_order: bool = False


def parse_json(text: str) -> Any:
    """Return the value of a JSON document that is an object or a list. Raises: ValueError: it is none, or Python's
    value would lose something: a key stands twice, or a decimal has too many digits."""
    if text.lstrip()[:1] not in ("{", "["):
        raise ValueError("no JSON object or list")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_float=_number)
    except (RecursionError, ArithmeticError) as error:
        raise ValueError("nested too deeply, or an exponent without bounds") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values. Raises: ValueError: a key stands twice."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return value


def _number(text: str) -> float:
    """Return the float of a decimal. Raises: ValueError: it has more digits than that."""
    number = float(text)
    is_short = len(text) <= EXACT_CHARS and "e" not in text and "E" not in text
    if not is_short and not (isfinite(number) and Decimal(text) == Decimal(repr(number))):
        raise ValueError(f"{text:.60} has more digits than a number of Python")
    return number


def _extract_blocks(node: Any, document: JsonDocument) -> Any:
    """Return a value in which references stand for its tables and long strings, which become blocks of the document.
    Raises: ReferenceError: a string looks like a reference."""
    if isinstance(node, (dict, list)) and _is_flat(node.values() if isinstance(node, dict) else node):
        return node
    if isinstance(node, dict):
        values = list(node.values())
        if len(values) >= MAP_LEAST and is_table(values) and not any(KEY in value for value in values):
            return _add(document, "map", columns_of([{KEY: key, **value} for key, value in node.items()]))
        return {key: _extract_blocks(value, document) for key, value in node.items()}
    if isinstance(node, list):
        if is_table(node):
            return _add(document, "rows", columns_of(node))
        if _is_matrix(node):
            names = [f"c{number}" for number in range(1, len(node[0]) + 1)]
            return _add(
                document, "matrix", Columns(names, [write_values(column) for column in zip(*node, strict=True)])
            )
        return [_extract_blocks(value, document) for value in node]
    if isinstance(node, str) and node[:1] == "@" and _REFERENCE.fullmatch(node):
        raise ReferenceError(node)
    if isinstance(node, str) and len(node) > TEXT_CHARS:
        if node[0] in "[{" and (inner := _json_string(node, document)) is not None:
            return inner
        if "\n" in node and not has_odd_signs(node.replace("\n", "")):
            return _add(document, "text", node)
    return node


def _is_flat(values: Collection[Any]) -> bool:
    """Return whether all values fit table cells: no object, list, long string, or text like a reference."""
    kinds = set(map(type, values))
    if dict in kinds or list in kinds:
        return False
    strings = values if kinds == {str} else [value for value in values if isinstance(value, str)]
    return max(map(len, strings), default=0) <= TEXT_CHARS and "@" not in "".join(strings)


def _is_matrix(node: list[Any]) -> bool:
    """Return whether a list holds lists of one length, without lists or objects in them."""
    if len(node) < ROWS_LEAST or set(map(type, node)) != {list} or not 1 < len(node[0]) <= MATRIX_WIDTH:
        return False
    return len(set(map(len, node))) == 1 and not any(isinstance(cell, (dict, list)) for row in node for cell in row)


def _json_string(text: str, document: JsonDocument) -> str | None:
    """Add a string that is JSON as a block; return its reference. None: it is no JSON, or of an unknown style."""
    try:
        value = parse_json(text)
    except ValueError:
        return None
    style = find_style(value, text)
    if style is None:
        return None
    document.keep_order = True
    return _add(document, f"json-{style}", dump(_extract_blocks(value, document)))


def _add(document: JsonDocument, kind: str, content: Columns | str) -> str:
    """Add a block to the document; return its reference."""
    document.blocks.append((kind, content))
    return f"@{len(document.blocks)}"


def _resolve(node: Any, blocks: dict[str, Any]) -> Any:
    """Return a value with the blocks, by reference, in place of their references."""
    if isinstance(node, dict):
        return {key: _resolve(value, blocks) for key, value in node.items()}
    if isinstance(node, list):
        return [_resolve(value, blocks) for value in node]
    return blocks.get(node, node) if isinstance(node, str) else node


@dataclass(frozen=True, slots=True)
class JsonFamily(Family):
    """JSON documents; `write_text` compresses long strings, `read_text` undoes that, `shorten_text` shortens them."""

    write_text: Callable[[str], str]
    read_text: Callable[[str], str]
    shorten_text: Callable[[str, TokenRoom], str]
    name = "json"
    note = f"@n stands for the table or text below; {TABLE_NOTE}"
    sure_share = SURE_SHARE_JSON

    def parse(self, text: str) -> JsonDocument | None:
        """Return a document with its blocks; None: the text is no JSON object or list, or would lose something."""
        try:
            document = JsonDocument(parse_json(text))
            document.root = _extract_blocks(document.value, document)
        except (ValueError, ReferenceError, RecursionError):
            return None
        return document

    def encode(self, parsed: JsonDocument) -> str:
        """Return the root as JSON, then each block after a line with its reference, kind and size."""
        lines = [dump(parsed.root)]
        for number, (kind, content) in enumerate(parsed.blocks, start=1):
            if isinstance(content, Columns):
                lines += [f"@{number} {kind} {len(content)}", *write(content, keep_order=parsed.keep_order)]
            else:
                body = self.write_text(content) if kind == "text" else content
                lines += [f"@{number} {kind} {body.count(chr(10)) + 1}", body]
        return "\n".join(lines)

    def decode(self, body: str) -> Any:
        """Return the value from which `encode` made the text."""
        lines = iter(body.split("\n"))
        root = json.loads(next(lines))
        blocks: dict[str, Any] = {}
        for line in lines:
            name, kind, count = line.split(" ")
            if kind == "text":
                blocks[name] = self.read_text("\n".join([next(lines) for _ in range(int(count))]))
            elif kind.startswith("json-"):
                style = STYLES[int(kind.removeprefix("json-"))]
                blocks[name] = json.dumps(_resolve(json.loads(next(lines)), blocks), **style)
            else:
                table = read(lines, int(count))
                if kind == "matrix":
                    blocks[name] = list(map(list, zip(*map(read_values, table.cells), strict=True)))
                elif kind == "map":
                    blocks[name] = {row.pop(KEY): row for row in rows_of(table)}
                else:
                    blocks[name] = rows_of(table)
        return _resolve(root, blocks) if blocks else root

    def equals(self, text: str, parsed: JsonDocument, decoded: Any) -> bool:
        return bool(parsed.value == decoded)

    def shorten(self, parsed: JsonDocument, room: TokenRoom) -> str | None:
        """Return the root, and each block shortened to its share of the room."""
        sizes = [
            sum(sum(map(len, cells)) for cells in content.cells) if isinstance(content, Columns) else len(content)
            for _, content in parsed.blocks
        ]
        root = dump(parsed.root)
        lines = [root]
        for number, ((kind, content), size) in enumerate(zip(parsed.blocks, sizes, strict=True), start=1):
            part = room.part((size + 1) / (sum(sizes) + len(root) + 1))
            if isinstance(content, Columns):
                shown = shorten_table(content, part) or write(content)
                lines += [f"@{number} {kind} {len(content)}", *shown]
            else:
                body = self.shorten_text(content, part) if kind == "text" else content
                lines += [f"@{number} {kind} {body.count(chr(10)) + 1}", body]
        return "\n".join(lines)
