"""Bounded answers from the original of a result: by lines, rows, a path, conditions, a regular expression or words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from perdure.context.sections.expand import largest, parse_rows
from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.errors import ToolError
from perdure.features.compression.constants import EXPAND_TOKENS
from perdure.features.compression.excerpt import ExcerptPiece, part_line
from perdure.features.compression.json_document import parse_json, parse_path, path_name
from perdure.features.compression.quantities import parse_quantity
from perdure.features.compression.search_results import parse_csv
from perdure.features.compression.shorten import Compressed
from perdure.features.compression.table import dump

PIECE_CHARS = 1_200
"""Larger values of a JSON document, and longer lines, are shown in parts."""
SMALL_CHARS = 200
# All patterns take linear time: none is tried twice from each place of a run of signs or spaces.
_WORD = re.compile(r"[\w.@+-]+")
_SIGNS = r"[=!<>~≥≤≠]"
# Between conditions, but not within quotes, which are read first.
_BETWEEN = re.compile(
    r"(?P<quoted>(?<=[=~<>≥≤≠ ])\"[^\"]*\"|(?<=[=~<>≥≤≠ ])'[^']*')"
    rf"|(?<!\s)\s+(?i:(?P<or>or)|and)\s+(?=[^\s=!<>~≥≤≠]+\s?{_SIGNS})|(?P<either>\|\|)|&&|,\s?(?=[\w.]+\s?{_SIGNS})"
)
# Such as 007 or 1e5: that is a text, while 12.50 equals 12.5, and 1s 1000ms.
_ID = re.compile(r"\D*0\d|.*\d[eE][+-]?\d", re.DOTALL)
# The steps of a path, and a key as Python writes it.
_ZEROS = re.compile(r"\D*0\d")
_PATH = re.compile(r'(?:\.?[^.\[\]"]++|\[\d{1,15}\]|\["(?:[^"\\]|\\["\\/bfnrt])*+"\])*')
_QUOTED_KEY = re.compile(r"\[\s*'([^'\\]*)'\s*\]")
_SIGN = re.compile(r"==|!=|<>|>=|<=|=>|=<|[=><~≥≤≠]")
_EQUALS = ("=", "==", "!=", "<>", "≠")
_ENDS_OPEN = re.compile(r"(?:\s(?:and|or)|&&|\|\|)\s*$", re.IGNORECASE)
_JSON_WORDS = {"None": "null", "True": "true", "False": "false"}
_SAME_SIGNS = {"==": "=", "<>": "!=", "≠": "!=", "≥": ">=", "=>": ">=", "≤": "<=", "=<": "<="}


def expand(
    original: Compressed | str,
    *,
    grep: str | None = None,
    lines: str | None = None,
    rows: str | None = None,
    path: str | None = None,
    where: str | None = None,
    query: str | None = None,
    max_tokens: int = EXPAND_TOKENS,
    count: Callable[[str], int] | None = None,
    matches: Callable[[str], bool] | None = None,
) -> str:
    """Return the pieces of an original that fulfil all arguments, as many as `max_tokens` allows, with their count.

    Args:
        grep: a regular expression; the lines, rows or values that match.
        lines: `120..180`, from 1.
        rows: `3..5`, from 1, of the list at `path`, or of the largest one.
        path: `items[3].status`, in a JSON document.
        where: `status=Pending and took>100ms`; the rows for which all of it holds. `~` means contains.
        query: words; what has the rarest of them comes first.
        count: estimates the tokens of a text; None: as for an unknown model.
        matches: in place of `grep`, returns whether the text of a piece matches.

    Raises: ToolError: an argument can't be used, or there is no such part.
    """
    text = original if isinstance(original, str) else original.original
    counter = count or ScriptTokenCounter().count
    skipped = _Skipped()
    if lines is not None:
        pieces = _span(_lines(text), lines, "lines")
    elif rows is not None or where is not None:
        pieces = _rows(text, path)
        if rows is not None:
            pieces = _span(pieces, rows, "rows")
        if where is not None:
            pieces = _matching_rows(pieces, where, skipped)
        pieces = [ExcerptPiece(piece.name, dump(value)) for piece, value in pieces]
    elif path is not None:
        pieces = list(_json_pieces(_value_at(_parse_rows(text), path), path))
    else:
        pieces = pieces_of(text)
    matches = _compile(grep) if grep is not None else matches
    if matches is not None:
        pieces = [piece for piece in pieces if matches(piece.text)]
    if query is not None:
        pieces = _rank_pieces(pieces, query)
    note = skipped.note()
    return _fit(pieces, max_tokens - counter(note), counter) + note


def pieces_of(text: str, most_chars: int = PIECE_CHARS, line_chars: int = PIECE_CHARS) -> list[ExcerptPiece]:
    """Return a text's pieces: JSON values (items of up to `most_chars` whole), else lines cut to `line_chars`."""
    try:
        value = parse_json(text)
    except ValueError:
        return _lines(text, line_chars)
    return list(_json_pieces(value, "", most_chars))


def _lines(text: str, most_chars: int = PIECE_CHARS) -> list[ExcerptPiece]:
    """Return the lines of a text, numbered from 1, in pieces of at most `most_chars`."""
    lines = enumerate(text.split("\n"), start=1)
    return [piece for number, line in lines for piece in part_line(str(number), line, most_chars)]


def _json_pieces(value: Any, name: str, most_chars: int = PIECE_CHARS) -> Iterator[ExcerptPiece]:
    """Yield a value of this path whole if it is small, else its parts; items up to `most_chars` stay whole."""
    whole = dump(value)
    if not isinstance(value, (dict, list)) or len(whole) <= SMALL_CHARS:
        if isinstance(value, str) and len(value) > PIECE_CHARS:
            for piece in _lines(value):
                yield ExcerptPiece(f"{name}, line {piece.name}", piece.text)
        else:
            yield ExcerptPiece(name, whole)
    elif isinstance(value, dict):
        if len(whole) <= most_chars and name.endswith("]"):
            yield ExcerptPiece(name, whole)
            return
        for key, inner in value.items():
            yield from _json_pieces(inner, name + path_name(("x", key))[1:] if name else path_name((key,)), most_chars)
    else:
        for index, inner in enumerate(value):
            yield from _json_pieces(inner, f"{name}[{index}]", most_chars)


def _parse_rows(text: str) -> Any:
    """The value of a JSON document, or lines of JSON or CSV as a list of rows. Raises: ToolError: it is none of these.
    Decimals that Python's numbers can't hold make all decimals strings. Of a key that stands twice, the last counts."""
    load = partial(json.loads, parse_float=str)
    for read in (parse_json, load, lambda text: [load(line) for line in text.split("\n") if line.strip()]):
        try:
            value = read(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, (dict, list)):
            return value
    if (table := parse_csv(text)) is not None:
        return [dict(zip(table.names, row, strict=True)) for row in table.rows]
    raise ToolError("this text has no rows and no paths: use lines or grep")


def _value_at(value: Any, path: str) -> Any:
    """The value at a path, such as `items[3].status`. Raises: ToolError: the path is invalid, or leads nowhere."""
    plain = _QUOTED_KEY.sub(lambda found: f"[{json.dumps(found[1])}]", re.sub(r"^\$(?=[.\[]|$)", "", path.strip()))
    if not _PATH.fullmatch(plain):
        raise ToolError(
            f'path={path[:60]!r} can\'t be used: write items[3].status, or labels["a.b"] for a key with a point in it;'
            " a path leads to one place, and counts from 0"
        )
    for step in parse_path(plain):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            keys = ", ".join(map(str, value)) if isinstance(value, dict) else ""
            keys = f"0..{len(value) - 1}" if isinstance(value, list) and value else keys or "nothing"
            raise ToolError(f"path={path[:60]!r}: there is no {step!r}; there is {keys[:300]}") from None
    return value


def _rows(text: str, path: str | None) -> list[tuple[ExcerptPiece, Any]]:
    """Return the items of the list at a path, or of the largest list, each with its name. Raises: ToolError."""
    value = _parse_rows(text)
    if path:
        value, name = _value_at(value, path), path
    else:
        value, name = max(_lists(value, ""), key=lambda found: len(found[0]), default=(None, ""))
    if isinstance(value, dict):
        return [(ExcerptPiece(key, ""), item) for key, item in value.items()]
    if not isinstance(value, list):
        raise ToolError("there is no list here: give the path of one")
    return [(ExcerptPiece(f"{name} row {number}".strip(), ""), item) for number, item in enumerate(value, start=1)]


def _lists(value: Any, name: str) -> Iterator[tuple[list[Any], str]]:
    """Yield the lists in a value with their paths, but not lists inside lists."""
    if isinstance(value, list):
        yield value, name
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _lists(inner, f"{name}.{key}" if name else key)


def _span(pieces: Sequence[Any], text: str, argument: str) -> list[Any]:
    """Return the pieces of a span such as `120..180`, from 1, of the argument `lines` or `rows`. Raises: ToolError."""
    first, last = parse_rows(text, argument, 1).within(1, len(pieces))
    if first > last:
        raise ToolError(f"{argument}={text[:40]!r} is outside: there are {argument} 1..{len(pieces)}")
    return list(pieces[first - 1 : last])


@dataclass(slots=True)
class _Skipped:
    """The values that conditions could not compare. Attributes: texts: value in a condition -> texts with another unit
    or without a number; their rows were left out. units: value in a condition without a unit -> unit -> a text with it;
    these were compared by number.

    Attributes:
        texts: value in a condition -> texts that have another unit or are no numbers; their rows were left out.
        units: value in a condition without a unit -> unit -> a text with it; they were compared as numbers.
    """

    texts: dict[str, dict[str, None]] = field(default_factory=dict)
    units: dict[str, dict[str, str]] = field(default_factory=dict)

    def note(self) -> str:
        """Return lines for the end of an answer that name what could not be compared; empty: all could."""
        why = "left out: they have another unit, or are not numbers"
        found = [(wanted, [*of], why) for wanted, of in self.texts.items()]
        mixed = [(wanted, [*of.values()]) for wanted, of in self.units.items() if len(of) > 1]
        found += [(wanted, texts, "compared without units") for wanted, texts in mixed]
        return "".join(
            f"\n[where {wanted[:20]!r} is wanted, {', '.join(f'{text[:20]!r}' for text in texts[:3])}"
            f"{f' and {len(texts) - 3} more' if len(texts) > 3 else ''} were {why}]"
            for wanted, texts, why in found[:3]
        )


def _matching_rows(
    rows: Sequence[tuple[ExcerptPiece, Any]], conditions: str, skipped: _Skipped
) -> list[tuple[ExcerptPiece, Any]]:
    """Return the rows that meet conditions; `skipped` gains the values that can't be compared. Raises: ToolError."""
    names = dict.fromkeys(path for _, row in rows for path, _ in _walk_values(row, "") if path)
    tests: list[list[tuple[Callable[[str], bool], str, str]]] = [[]]
    for condition, follows_or in _conditions(conditions):
        sign = _SIGN.search(condition, 1)
        name, value = (condition[: sign.start()].rstrip(), condition[sign.end() :].strip()) if sign else ("", "")
        if sign is None or (sign[0] not in _EQUALS and not value) or _ENDS_OPEN.search(condition):
            raise ToolError(f"where={condition[:60]!r} can't be used: write status=Pending, took>100ms or name~web")
        if value[:1] in ("'", '"') and value[-1:] == value[:1]:
            value = value[1:-1]
        if follows_or:
            tests.append([])
        tests[-1].append((_name_test(name, names), _SAME_SIGNS.get(sign[0], sign[0]), value))

    def holds(row: Any, is_named: Callable[[str], bool], sign: str, wanted: str) -> bool:
        """Return whether a value of the row whose path has the name fulfils the condition."""
        return any(_compare(value, sign, wanted, skipped) for path, value in _walk_values(row, "") if is_named(path))

    return [row for row in rows if any(all(holds(row[1], *test) for test in one) for one in tests)]


def _conditions(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each condition of an argument `where`, and whether `or` stands before it."""
    start, follows_or = 0, False
    for found in _BETWEEN.finditer(text):
        if found["quoted"] is None:
            yield text[start : found.start()].strip(), follows_or
            start, follows_or = found.end(), bool(found["or"] or found["either"])
    yield text[start:].strip(), follows_or


def _name_test(name: str, names: Collection[str]) -> Callable[[str], bool]:
    """Return what tells whether a path ends in this name, with letter case only if a path of `names` is written so.
    Raises: ToolError: no path ends in it."""
    for fold in (str, str.lower):
        end = fold(f".{name}")
        if any(f".{fold(path)}".endswith(end) for path in names):
            return lambda path: f".{fold(path)}".endswith(end)
    raise ToolError(f"where: there is no {name[:60]!r}; there is {', '.join(names)[:300] or 'nothing'}")


def _walk_values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield path and value of a value, and of all values in it; items of a list have the path of the list."""
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk_values(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk_values(inner, path)


def _compare(value: Any, sign: str, wanted: str, skipped: _Skipped) -> bool:
    """Return whether a JSON value fulfils a condition: `=`, `!=`, `~` (contains), `<`, `<=`, `>` or `>=` `wanted`.
    Numbers with units are compared as quantities, other texts by their letters; ids such as 007 only as texts."""
    text = value if isinstance(value, str) else dump(value)
    if value is None or isinstance(value, bool):
        wanted = _JSON_WORDS.get(wanted, wanted)
    if sign == "~":
        return wanted.lower() in text.lower()
    left, right = parse_quantity(text), parse_quantity(wanted)
    order = left.compare(right) if left and right else None
    if sign in ("=", "!="):
        may_be_equal = left and right and bool(left.unit) == bool(right.unit)
        is_id = (_ID if isinstance(value, str) else _ZEROS).match(wanted) or (
            isinstance(value, str) and _ID.match(text)
        )
        return (text == wanted or bool(order == 0 and may_be_equal and not is_id)) is (sign != "!=")
    if value is None or isinstance(value, (dict, list)) or not text:
        return False
    if left and right and not right.unit:
        skipped.units.setdefault(wanted, {}).setdefault(left.unit, text)
    elif order is None and (
        (left and left.unit)
        or (right and (left or right.unit or not text[0].isdigit()))  # 2026-11-27 is more than 2026
    ):
        skipped.texts.setdefault(wanted, {})[text] = None
        return False
    if order is None:
        order = (text > wanted) - (text < wanted)
    return order == (1 if sign[0] == ">" else -1) or (order == 0 and len(sign) > 1)


def _rank_pieces(pieces: Sequence[ExcerptPiece], query: str) -> list[ExcerptPiece]:
    """Return the pieces that have words of the query, those with the rarest words first."""
    words = {word.rstrip(".@+-").lower() for word in _WORD.findall(query)} - {""}
    lowered = [f"{piece.name} {piece.text}".lower() for piece in pieces]
    counts = {word: sum(word in text for text in lowered) for word in words}
    scores = [sum(1 / counts[word] for word in words if word in text) for text in lowered]
    return [pieces[place] for place in sorted(range(len(pieces)), key=lambda place: -scores[place]) if scores[place]]


def _compile(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a regular expression is found in a text, in any letter case. Raises: ToolError."""
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ToolError(f"grep={pattern[:60]!r} is not a regular expression: {error.msg}") from error
    return lambda text: compiled.search(text) is not None


def _fit(pieces: Sequence[ExcerptPiece], max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the first pieces that fit into `max_tokens`, a line each, and how many are shown if that is not all."""
    if not pieces:
        return "nothing matches"
    shown: list[str] = []
    used = 40
    for piece in pieces:
        line = f"{piece.name}| {piece.text}"
        size = count(line) + 1
        if used + size > max_tokens:
            break
        shown.append(line)
        used += size
    if not shown:
        chars = max(20, largest(len(line), lambda chars: count(line[:chars]) <= max_tokens - used))
        shown = [f"{line[:chars]}… [cut: {chars:,} of {len(line):,} characters]"]
    if len(shown) == len(pieces):
        return "\n".join(shown)
    return "\n".join([*shown, f"[{len(shown)} of {len(pieces)} are shown: narrow the call]"])
