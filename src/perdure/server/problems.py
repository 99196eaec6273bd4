"""The text of a 422: each field of a request that is wrong, with its problem and its value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

SECRET_FIELDS = frozenset({"secrets", "tool_exec_environment_variables", "config", "env", "env_vars", "environment"})
SECRET_FIELDS |= {"auth_header", "auth_token", "token", "custom_headers", "headers"}
"""Fields whose values never appear in an error, not even inside the value of another field."""

VALUE_CHARS = 80
ERRORS_MAX = 20
"""How many fields are named; further ones are only counted."""

_WHOLE_NUMBER, _DATE_TIME = (
    "Input should be a whole number",
    "Input should be a date and time such as 2026-11-20T15:30:00Z",
)
_TEXTS = {
    **dict.fromkeys(("int_from_float", "int_parsing", "int_type"), _WHOLE_NUMBER),
    "int_parsing_size": f"{_WHOLE_NUMBER} with fewer digits",
    **dict.fromkeys(("float_parsing", "float_type"), "Input should be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "Input should be true or false"),
    **dict.fromkeys(("string_type", "string_sub_type"), "Input should be a text"),
    **dict.fromkeys(("list_type", "is_instance_of", "sequence_str"), "Input should be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "Input should be an object"),
    **dict.fromkeys(("datetime_parsing", "datetime_from_date_parsing", "datetime_type"), _DATE_TIME),
}
"""Type of the validator's error -> our text, where its own names Python types or steps of the validator."""

_LENGTHS = {"too_long": "at most {max_length:,}", "too_short": "at least {min_length:,}"}
_JSON = json.JSONEncoder(ensure_ascii=False, default=repr)
_EXPECTED = "Input should be "
_DOT = re.compile(r"\.")
_BRANCH = re.compile(r".*[\[(].*|str|int|float|bool")
"""A step of the validator into one of several types of a field; no field has such a name."""


def problems_text(errors: Sequence[Mapping[str, Any]]) -> str:
    """One line that names each field, its problem and its value.

    A field of several types gets one text with all of them. But if one type matches except for an inner field, only the
    inner problem is named.
    """
    by_place: dict[str, list[Mapping[str, Any]]] = {}
    for error in errors:
        by_place.setdefault(_path(error["loc"]), []).append(error)
    outer = {place[: dot.start()] for place in by_place for dot in _DOT.finditer(place)}
    inner = [place for place in by_place if place not in outer]
    lines = [_line(place, by_place[place][:ERRORS_MAX]) for place in inner[:ERRORS_MAX]]
    if len(inner) > ERRORS_MAX:
        lines.append(f"and {len(inner) - ERRORS_MAX:,} more")
    return "; ".join(lines)


def _path(loc: Sequence[str | int]) -> str:
    """The name of a field, with dots, without the validator's own steps."""
    parts = [part[:VALUE_CHARS] if isinstance(part, str) else part for part in loc]
    return ".".join(
        str(part) for part in parts if not isinstance(part, str) or (part.isprintable() and not _BRANCH.fullmatch(part))
    )


def _line(place: str, errors: Sequence[Mapping[str, Any]]) -> str:
    """Return the problem of one field, with its value unless that is secret."""
    texts = list(dict.fromkeys(map(_text, errors)))
    if len(texts) > 1 and all(text.startswith(_EXPECTED) for text in texts):
        texts = [_EXPECTED + " or ".join(text.removeprefix(_EXPECTED) for text in texts)]
    text, error = " or ".join(texts), errors[0]
    if error["type"] == "json_invalid":
        last = error["loc"][-1]  # one of the two parsers says here where it stopped, the other one in its text
        at = f", at character {last}" if isinstance(last, int) else ""
        return f"body: it is not JSON: {error['ctx']['error']}{at}"
    if error["type"] in ("missing", *_LENGTHS, "string_too_long"):
        return f"{place}: {text}"
    preview = _preview(error.get("input")) if SECRET_FIELDS.isdisjoint(map(str, error["loc"])) else None
    if preview is None:
        return f"{place}: {text}"
    return f"{place}: {text}{':' if error['type'] == 'value_error' else ', not'} {preview}"


def _text(error: Mapping[str, Any]) -> str:
    """Return the text of one of the validator's errors."""
    kind, facts = error["type"], error.get("ctx", {})
    if kind in _LENGTHS:
        has = facts.get("actual_length")
        text = f"{facts['field_type']} should have {_LENGTHS[kind].format(**facts)} items"
        return text if has is None else f"{text}, not {has:,}"
    if kind == "string_too_long":
        return f"String should have at most {facts['max_length']:,} characters, not {len(error['input']):,}"
    if kind == "union_tag_invalid":
        return f"{facts['discriminator']} should be {' or '.join(facts['expected_tags'].rsplit(', ', 1))}"
    return _TEXTS.get(kind) or str(error["msg"]).removeprefix("Value error, ")


def _preview(value: Any) -> str | None:
    """The beginning of a value as JSON, a text in single quotes; None: it holds a secret."""
    if isinstance(value, str | bytes):
        return repr(value[:VALUE_CHARS])[:VALUE_CHARS]
    text = ""
    for piece in _JSON.iterencode(value):  # only the start of a large one is built
        text += piece
        if len(text) >= VALUE_CHARS:
            break
    text = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text[:VALUE_CHARS])[:VALUE_CHARS]
    return None if any(f'"{name}"' in text for name in SECRET_FIELDS) else text
