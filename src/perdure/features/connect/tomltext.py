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
    before = _parse(text)
    if find_table(text, names) == value:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    new = newline.join([f"[{'.'.join(names)}]", *(f"{key} = {_dump(one)}" for key, one in value.items())]) + newline
    if (span := _span(text, names)) is not None:
        after = text[: span[0]] + new + text[span[1] :]
    else:
        gap = "" if not text else newline if text.endswith("\n") else 2 * newline
        after = text + gap + new
    _check(after, _merged(before, names, value), names)
    return after


def remove_table(text: str, names: Sequence[str]) -> str:
    """Return the text without the table; as it is where there is none.

    Raises: InvalidInput: it can't be read, or has the table in another form.
    """
    if text.startswith(_MARK):
        return _MARK + remove_table(text[1:], names)
    before = _parse(text)
    if find_table(text, names) is None:
        return text
    after = text
    if (span := _span(text, names)) is not None:
        start = span[0]
        while text[:start].endswith(("\n\n", "\r\n\r\n")):  # the gap before it goes too
            start -= 2 if text[:start].endswith("\r\n") else 1
        after = text[:start] + text[span[1] :]
    _check(after, _without(before, names), names)
    return after


def find_table(text: str, names: Sequence[str]) -> Any:
    """Return the value of this name; None: there is none. Raises: InvalidInput: the text can't be read."""
    value: Any = _parse(text.removeprefix(_MARK))
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def _check(after: str, expected: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises: InvalidInput: the text does not say what is expected."""
    try:
        is_as_expected = _dropped(tomllib.loads(after)) == _dropped(expected)
    except (tomllib.TOMLDecodeError, RecursionError):
        is_as_expected = False
    if not is_as_expected:
        raise InvalidInput(f"{'.'.join(names)} stands there in a form that can't be changed as text")


def _dropped(value: Mapping[str, Any]) -> str:
    """The document as a text that is equal for equal ones, without empty tables: a header alone may make one."""

    def plain(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {key: kept for key, inner in sorted(one.items()) if (kept := plain(inner)) != {}}
        return [plain(inner) for inner in one] if isinstance(one, list) else [type(one).__name__, repr(one)]

    return repr(plain(value))


def _without(document: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the document without the value of this name, which it has."""
    if len(names) == 1:
        return {key: one for key, one in document.items() if key != names[0]}
    return {**document, names[0]: _without(document[names[0]], names[1:])}


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
    text = json.dumps(value, ensure_ascii=False)  # TOML's basic strings and booleans are JSON's
    return text.replace("\x7f", "\\u007f")
