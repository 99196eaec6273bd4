"""Edit one table of TOML as text: what is not changed stays byte for byte."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.errors import InvalidInput

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
_MARK = "\ufeff"
"""A byte order mark, with which a file may begin."""


def set_table(text: str, names: Sequence[str], value: Mapping[str, Any]) -> str:
    """Return the text with a table of this name, at its place or at the end.

    Raises: InvalidInput: the text can't be read, or has the table in another form.
    """
    if text.startswith(_MARK):
        return _MARK + set_table(text[1:], names, value)
    if find_table(text, names) == value:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    new = newline.join([f"[{'.'.join(names)}]", *(f"{key} = {_dump(one)}" for key, one in value.items())]) + newline
    gap = "" if not text else newline if text.endswith("\n") else 2 * newline
    start, end = _span(text, names) or (len(text), len(text))
    return _checked(text, text[:start] + (gap if start == len(text) else "") + new + text[end:], names, value)


def remove_table(text: str, names: Sequence[str]) -> str:
    """Return the text without the table; as it is where there is none.

    Raises: InvalidInput: it can't be read, or has the table in another form.
    """
    if text.startswith(_MARK):
        return _MARK + remove_table(text[1:], names)
    if find_table(text, names) is None:
        return text
    start, end = _span(text, names) or (0, 0)
    while text[:start].endswith(("\n\n", "\r\n\r\n")):  # the gap before it goes too
        start -= 2 if text[:start].endswith("\r\n") else 1
    return _checked(text, text[:start] + text[end:], names, None)


def find_table(text: str, names: Sequence[str]) -> Any:
    """Return the value of this name; None: there is none. Raises: InvalidInput: the text can't be read."""
    value: Any = _parse(text.removeprefix(_MARK))
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _checked(before: str, after: str, names: Sequence[str], value: Any) -> str:
    """Return a text, if it says the same as before but for a table. Raises: InvalidInput."""
    others = _others(before, names)
    try:
        if find_table(after, names) == value and _others(after, names) == others:
            return after
    except InvalidInput:
        pass
    raise InvalidInput(f"{'.'.join(names)} stands there in a form that can't be changed as text")


def _others(text: str, names: Sequence[str]) -> str:
    """Return what a text says beside a table, as a text that is equal for equal ones. Empty tables are left out: a
    header alone may make one. Raises: InvalidInput: it can't be read, or something on the way is no table."""

    def without_empty(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: kept for key, one in value.items() if (kept := without_empty(one)) != {}}

    inner = document = _parse(text)
    for name in names[:-1]:
        inner = inner.get(name, {})
        if not isinstance(inner, Mapping):
            raise InvalidInput(f"{name} is no table there")
    inner.pop(names[-1], None)
    return json.dumps(without_empty(document), sort_keys=True, default=repr)


def _span(text: str, names: Sequence[str]) -> tuple[int, int] | None:
    """Return where the table begins and ends, with its sub-tables; None: there is none."""
    name = r"[ \t]*\.[ \t]*".join(rf"(?:{re.escape(one)}|\"{re.escape(one)}\"|'{re.escape(one)}')" for one in names)
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
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"it can't be read as TOML: {error}") from None


def _dump(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_dump(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    text = json.dumps(value, ensure_ascii=False)  # TOML's basic strings and booleans are JSON's
    return text.replace("\x7f", "\\u007f")
