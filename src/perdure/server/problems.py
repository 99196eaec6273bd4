"""What is wrong with a request's fields, in words: the validator's where they are plain, ours where they are not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["problems_text"]

SECRET_FIELDS = frozenset({"secrets", "tool_exec_environment_variables", "config", "env", "env_vars", "environment"})
SECRET_FIELDS |= {"auth_header", "auth_token", "token", "custom_headers", "headers"}
"""What stands in these is never told, not even where it is refused, or something around it."""

SHOWN_CHARS = 80
ERRORS_MAX = 20
"""So many fields are named; of the others how many they are."""

_WHOLE, _MOMENT = "Input should be a whole number", "Input should be a date and time such as 2026-11-20T15:30:00Z"
_TEXTS = {
    **dict.fromkeys(("int_from_float", "int_parsing", "int_type"), _WHOLE),
    "int_parsing_size": f"{_WHOLE} with fewer digits",
    **dict.fromkeys(("float_parsing", "float_type"), "Input should be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "Input should be true or false"),
    **dict.fromkeys(("string_type", "string_sub_type"), "Input should be a text"),
    **dict.fromkeys(("list_type", "is_instance_of", "sequence_str"), "Input should be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "Input should be an object"),
    **dict.fromkeys(("datetime_parsing", "datetime_from_date_parsing", "datetime_type"), _MOMENT),
}
"""Kind of the validator's error -> what is said in place of its words, which name types of Python, or its own steps."""

_LENGTHS = {"too_long": "at most {max_length:,}", "too_short": "at least {min_length:,}"}
_EXPECTED = "Input should be "
_DOT = re.compile(r"\.")
_BRANCH = re.compile(r".*[\[(].*|str|int|float|bool")
"""A step into one of several types that a field may have; no field of ours is called so."""


def problems_text(errors: Sequence[Mapping[str, Any]]) -> str:
    """One line: each field with what is wrong, and the value it had. Of a field that may have several types, what it
    should be; where one of them fits but for something within, that."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for error in errors:
        found.setdefault(_place(error["loc"]), []).append(error)
    outer = {place[: dot.start()] for place in found for dot in _DOT.finditer(place)}
    inner = [place for place in found if place not in outer]
    lines = [_line(place, found[place][:ERRORS_MAX]) for place in inner[:ERRORS_MAX]]
    if len(inner) > ERRORS_MAX:
        lines.append(f"and {len(inner) - ERRORS_MAX:,} more")
    return "; ".join(lines)


def _place(loc: Sequence[str | int]) -> str:
    shown = [part[:SHOWN_CHARS] if isinstance(part, str) else part for part in loc]
    return ".".join(
        str(part) for part in shown if not isinstance(part, str) or (part.isprintable() and not _BRANCH.fullmatch(part))
    )


def _line(place: str, errors: Sequence[Mapping[str, Any]]) -> str:
    said = list(dict.fromkeys(map(_text, errors)))
    if len(said) > 1 and all(text.startswith(_EXPECTED) for text in said):
        said = [_EXPECTED + " or ".join(text.removeprefix(_EXPECTED) for text in said)]
    text, error = " or ".join(said), errors[0]
    if error["type"] in ("json_invalid", "missing", *_LENGTHS, "string_too_long"):
        return f"{place}: {text}"
    shown = _shown(error.get("input")) if SECRET_FIELDS.isdisjoint(map(str, error["loc"])) else None
    if shown is None:
        return f"{place}: {text}"
    return f"{place}: {text}{':' if error['type'] == 'value_error' else ', not'} {shown}"


def _text(error: Mapping[str, Any]) -> str:
    kind, facts = error["type"], error.get("ctx", {})
    if kind in _LENGTHS:
        has = facts.get("actual_length")
        told = f"{facts['field_type']} should have {_LENGTHS[kind].format(**facts)} items"
        return told if has is None else f"{told}, not {has:,}"
    if kind == "string_too_long":
        return f"String should have at most {facts['max_length']:,} characters, not {len(error['input']):,}"
    return _TEXTS.get(kind) or str(error["msg"]).removeprefix("Value error, ")


def _shown(value: Any) -> str | None:
    """The beginning of a value; the words of JSON for what Python calls otherwise. None: a secret would be in it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    text = ""
    for piece in _pieces(value):
        if piece is None:
            return None
        text += piece
        if len(text) >= SHOWN_CHARS:
            break
    return text[:SHOWN_CHARS]


def _pieces(value: Any) -> Iterator[str | None]:
    """What `repr` gives, piece by piece, so that only the beginning of a large value is written; None: a secret."""
    match value:
        case list():
            yield "["
            for index, one in enumerate(value):
                yield ", " if index else ""
                yield from _pieces(one)
            yield "]"
        case dict():
            yield "{"
            for index, (name, one) in enumerate(value.items()):
                yield None if name in SECRET_FIELDS else ", " if index else ""
                yield from _pieces(name)
                yield ": "
                yield from _pieces(one)
            yield "}"
        case str() | bytes():
            yield repr(value[:SHOWN_CHARS])
        case _:
            yield repr(value)
