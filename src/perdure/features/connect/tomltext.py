"""Edit one table of TOML as text: what is not changed stays byte for byte."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.errors import InvalidInput

_MARK = "\ufeff"
"""A byte order mark, with which a file may begin."""


def set_table(text: str, names: Sequence[str], value: Mapping[str, Any] | None) -> str:
    """Return the text with the table `names` set to `value`, in its old place or at the end; with None, without it.

    Raises: InvalidInput: the text can't be read, or has the table in another form.
    """
    if find_table(text, names) == value:
        return text
    mark = _MARK if text.startswith(_MARK) else ""
    before, old, after = _parts(text.removeprefix(_MARK), names)
    newline = "\r\n" if "\r\n" in text else "\n"
    if value is not None:
        lines = [f"[{'.'.join(names)}]", *(f"{key} = {_dump(one)}" for key, one in value.items())]
        gap = "" if old or not before else newline if before.endswith("\n") else 2 * newline
        changed = mark + before + gap + "".join(line + newline for line in lines) + after
    else:
        while before.endswith(("\n\n", "\r\n\r\n")):  # the gap before it goes too
            before = before.removesuffix("\n").removesuffix("\r")
        changed = mark + before + after
    others = _without_table(text, names)
    try:
        if find_table(changed, names) == value and _without_table(changed, names) == others:
            return changed
    except InvalidInput:
        pass
    raise InvalidInput(f"{'.'.join(names)} stands there in a form that can't be changed as text")


def find_table(text: str, names: Sequence[str]) -> Any:
    """Return the value of this name; None: there is none. Raises: InvalidInput: the text can't be read."""
    value: Any = _parse(text)
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _without_table(text: str, names: Sequence[str]) -> str:
    """Return everything in a text but one table, as a text to compare. Empty tables are left out, as a header alone may
    make one. Raises: InvalidInput: it can't be read, or a part of the path is no table."""

    def without_empty(value: Any) -> Any:
        """Return the value without empty tables, at any depth."""
        if not isinstance(value, Mapping):
            return value
        return {key: kept for key, one in value.items() if (kept := without_empty(one)) != {}}

    inner = document = _parse(text)
    for name in names[:-1]:
        inner = inner.get(name, {})
        if not isinstance(inner, Mapping):
            raise InvalidInput(f"{name} is not a table there")
    inner.pop(names[-1], None)
    return json.dumps(without_empty(document), sort_keys=True, default=repr)


def _parts(text: str, names: Sequence[str]) -> tuple[str, str, str]:
    """Return (text before the table, the table with its sub-tables, text after it); without the table all is before.

    Empty lines and comments before the next table belong to that one.
    """
    name = r"[ \t]*\.[ \t]*".join(rf"(?:{re.escape(one)}|\"{re.escape(one)}\"|'{re.escape(one)}')" for one in names)
    header, lines = rf"[ \t]*\[[ \t]*{name}[ \t]*", re.findall(r".*\n|.+", text)
    start = next((at for at, line in enumerate(lines) if re.match(rf"{header}\]", line)), len(lines))
    end = start + 1
    while end < len(lines) and (re.match(r"[ \t]*\[", lines[end]) is None or re.match(rf"{header}\.", lines[end])):
        end += 1
    while start + 1 < end < len(lines) and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return "".join(lines[:start]), "".join(lines[start:end]), "".join(lines[end:])


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(_MARK))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"it can't be read as TOML: {error}") from None


def _dump(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_dump(one)}" for key, one in value.items()) + " }"
    text = json.dumps(value, ensure_ascii=False)  # TOML's basic strings, booleans and lists of them are JSON's
    return text.replace("\x7f", "\\u007f")
