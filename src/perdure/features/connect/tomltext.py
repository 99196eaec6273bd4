"""Edit one table of TOML as text: what is not changed stays byte for byte."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.errors import InvalidInput

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def set_table(text: str, names: Sequence[str], value: Mapping[str, Any]) -> str:
    """Return the text with a table of this name, at its place or at the end.

    Raises: InvalidInput: the text can't be read, or has the table in another form.
    """
    before = _parse(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    new = newline.join([f"[{'.'.join(names)}]", *(f"{key} = {_dump(one)}" for key, one in value.items())]) + newline
    if (span := _span(text, names)) is not None:
        after = text[: span[0]] + new + text[span[1] :]
    else:
        gap = "" if not text else newline if text.endswith("\n") else 2 * newline
        after = text + gap + new
    expected = _merged(before, names, value)
    try:
        is_as_expected = tomllib.loads(after) == expected
    except tomllib.TOMLDecodeError:
        is_as_expected = False
    if not is_as_expected:
        raise InvalidInput(f"{'.'.join(names)} stands there in a form that can't be changed as text")
    return after


def remove_table(text: str, names: Sequence[str]) -> str:
    """Return the text without the table; as it is where there is none. Raises: InvalidInput: it can't be read."""
    _parse(text)
    span = _span(text, names)
    if span is None:
        return text
    start = span[0]
    while text[:start].endswith(("\n\n", "\r\n\r\n")):  # the gap before it goes too
        start -= 2 if text[:start].endswith("\r\n") else 1
    return text[:start] + text[span[1] :]


def _span(text: str, names: Sequence[str]) -> tuple[int, int] | None:
    """Return where the table begins and ends, with its sub-tables; None: there is none."""
    name = r"[ \t]*\.[ \t]*".join(rf"(?:{re.escape(one)}|\"{re.escape(one)}\")" for one in names)
    found = re.search(rf"^[ \t]*\[[ \t]*{name}[ \t]*\][^\n]*(?:\n|\Z)", text, re.MULTILINE)
    if found is None:
        return None
    own = re.compile(rf"[ \t]*\[[ \t]*{name}[ \t]*\.")
    for header in _HEADER.finditer(text, found.end()):
        if own.match(text, header.start()) is None:
            return found.start(), _without_gap(text, header.start())
    return found.start(), len(text)


def _without_gap(text: str, end: int) -> int:
    """Return the end of a table before the empty lines and comments that belong to the next one."""
    while True:
        line = text.rfind("\n", 0, end - 1) + 1
        if line >= end or (text[line:end].strip() and not text[line:end].lstrip().startswith("#")):
            return end
        end = line


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"it can't be read as TOML: {error}") from None


def _merged(document: Mapping[str, Any], names: Sequence[str], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the table. Raises: InvalidInput: something on the way is no table."""
    if not names:
        return dict(value)
    inner = document.get(names[0], {})
    if not isinstance(inner, Mapping):
        raise InvalidInput(f"{names[0]} is no table there")
    return {**document, names[0]: _merged(inner, names[1:], value)}


def _dump(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_dump(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # TOML's basic strings and booleans are JSON's
