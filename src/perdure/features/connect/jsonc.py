"""Edit JSON with comments as text: what is not changed stays byte for byte.

Editors write their settings with comments, trailing commas, tabs and CRLF; a parser and a dump would lose all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.core.errors import InvalidInput

DEPTH_MAX = 200
_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_LINE_REST = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*)?")


@dataclass(slots=True)
class JsonNode:
    """A value in a text, from `start` until before `end`.

    Args:
        value: what it is in Python.
        members: of an object: name -> its value; the last of one name counts.
        names: of an object: name -> where the member begins.
        items: of a list: its values.
        comma: of an object or a list: the place behind a trailing comma; None: there is none.
    """

    start: int
    end: int
    value: Any
    members: dict[str, JsonNode] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    items: list[JsonNode] = field(default_factory=list)
    comma: int | None = None


def parse_jsonc(text: str) -> JsonNode:
    """Parse a text. Raises: InvalidInput: it is no JSON with comments, with the line."""
    try:
        node = _Parser(text).value(_skip(text, 0), 0)
        if (end := _skip(text, node.end)) != len(text):
            raise _Unreadable(end)
    except _Unreadable as error:
        line = text.count("\n", 0, error.at) + 1
        raise InvalidInput(f"line {line} can't be read as JSON: {text[error.at : error.at + 40]!r}") from None
    return node


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value at a path of names; objects on the way are made.

    Raises: InvalidInput: the text can't be read, or something on the way is no object.
    """
    if not text.strip("\ufeff \t\r\n"):
        text = f"{text}{{}}\n"
    node, newline = parse_jsonc(text), "\r\n" if "\r\n" in text else "\n"
    unit = _indent_unit(text, node)
    for depth, name in enumerate(path):
        if not isinstance(node.value, dict):
            place = ".".join(path[:depth]) or "the file"
            raise InvalidInput(f"{place} is {_kind(node.value)} there and not an object")
        if name not in node.members:
            for key in reversed(path[depth + 1 :]):
                value = {key: value}
            return _insert(text, node, name, value, unit=unit, newline=newline, depth=depth + 1)
        node = node.members[name]
    return text[: node.start] + _dump(value, unit, newline, len(path)) + text[node.end :]


def append_item(text: str, path: Sequence[str], item: Any, mark: str) -> str:
    """Return the text with an item in the list at a path of names, which is made if there is none.

    Args:
        mark: an item whose JSON contains this is an earlier form of the same one, and is replaced.
    Raises: InvalidInput: the text can't be read, or there is no list at the path.
    """
    node = _find(text, path)
    if node is None:
        return set_member(text, path, [item])
    if not isinstance(node.value, list):
        raise InvalidInput(f"{'.'.join(path)} is {_kind(node.value)} there and not a list")
    newline, depth = "\r\n" if "\r\n" in text else "\n", len(path) + 1
    unit = _indent_unit(text, parse_jsonc(text))
    for known in node.items:
        if mark in json.dumps(known.value, ensure_ascii=False):
            if known.value == item:
                return text
            return text[: known.start] + _dump(item, unit, newline, depth) + text[known.end :]
    return _insert_last(
        text, node, node.items, _dump(item, unit, newline, depth), unit=unit, newline=newline, depth=depth
    )


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at a path of names; as it is where there is none.

    Raises: InvalidInput: the text can't be read.
    """
    node = _find(text, path[:-1])
    if node is None or not isinstance(node.value, dict) or path[-1] not in node.members:
        return text
    return _cut(text, node, node.names[path[-1]], node.members[path[-1]].end, len(node.members))


def remove_item(text: str, path: Sequence[str], mark: str) -> str:
    """Return the text without the items of a list whose JSON contains a mark. Raises: InvalidInput."""
    while (node := _find(text, path)) is not None:
        found = [one for one in node.items if mark in json.dumps(one.value, ensure_ascii=False)]
        if not found:
            break
        text = _cut(text, node, found[0].start, found[0].end, len(node.items))
    return text


def _find(text: str, path: Sequence[str]) -> JsonNode | None:
    """Return the value at a path of names; None: there is none. Raises: InvalidInput: the text can't be read."""
    if not text.strip("\ufeff \t\r\n"):
        return None
    node = parse_jsonc(text)
    for name in path:
        if not isinstance(node.value, dict) or name not in node.members:
            return None
        node = node.members[name]
    return node


def _cut(text: str, inside: JsonNode, start: int, end: int, count: int) -> str:
    """Return the text without the member or item of `inside` at [start, end), and without its comma and its lines.

    Args:
        count: how many members or items there are.
    """
    comma = _skip(text, end)
    if text[comma : comma + 1] == ",":
        end = comma + 1
    elif count > 1:  # the last one: the comma before it goes too
        before = text.rfind(",", inside.start, start)
        text, start, end = text[:before] + text[before + 1 :], start - 1, end - 1
    line = text.rfind("\n", 0, start) + 1
    rest = _LINE_REST.match(text, end)
    assert rest is not None
    if not text[line:start].strip() and text[rest.end() : rest.end() + 2].startswith(("\n", "\r\n")):
        start, end = line - (2 if text[line - 2 : line] == "\r\n" else 1), rest.end()  # its lines go whole
    return text[: max(start, 0)] + text[end:]


class _Unreadable(Exception):
    """The text can't be read from a place on."""

    def __init__(self, at: int) -> None:
        self.at = at


class _Parser:
    """Reads values of a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, depth: int) -> JsonNode:
        text = self._text
        if depth > DEPTH_MAX:
            raise _Unreadable(at)
        if text[at : at + 1] == "{":
            return self._object(at, depth)
        if text[at : at + 1] == "[":
            return self._list(at, depth)
        if found := _STRING.match(text, at) or _SCALAR.match(text, at):
            try:
                return JsonNode(at, found.end(), json.loads(found[0]))
            except ValueError:
                pass
        raise _Unreadable(at)

    def _object(self, at: int, depth: int) -> JsonNode:
        text, node = self._text, JsonNode(at, at, {})
        at = _skip(text, at + 1)
        while text[at : at + 1] != "}":
            if (name := _STRING.match(text, at)) is None:
                raise _Unreadable(at)
            colon = _skip(text, name.end())
            if text[colon : colon + 1] != ":":
                raise _Unreadable(colon)
            member, key = self.value(_skip(text, colon + 1), depth + 1), json.loads(name[0])
            node.members[key], node.names[key], node.value[key] = member, at, member.value
            at, node.comma = self._next(member.end, "}")
        node.end = at + 1
        return node

    def _list(self, at: int, depth: int) -> JsonNode:
        text, node = self._text, JsonNode(at, at, [])
        at = _skip(text, at + 1)
        while text[at : at + 1] != "]":
            item = self.value(at, depth + 1)
            node.items.append(item)
            node.value.append(item.value)
            at, node.comma = self._next(item.end, "]")
        node.end = at + 1
        return node

    def _next(self, at: int, closing: str) -> tuple[int, int | None]:
        """(Where the next item or the closing sign is, the place behind a comma before the closing sign)."""
        at = _skip(self._text, at)
        if self._text[at : at + 1] == closing:
            return at, None
        if self._text[at : at + 1] != ",":
            raise _Unreadable(at)
        behind = at + 1
        at = _skip(self._text, behind)
        return at, behind if self._text[at : at + 1] == closing else None


def _skip(text: str, at: int) -> int:
    """Return where the first sign is that is no space and no comment."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _insert(text: str, node: JsonNode, name: str, value: Any, *, unit: str, newline: str, depth: int) -> str:
    """Return the text with one more member at the end of an object."""
    member = f"{json.dumps(name, ensure_ascii=False)}: {_dump(value, unit, newline, depth)}"
    return _insert_last(text, node, list(node.members.values()), member, unit=unit, newline=newline, depth=depth)


def _insert_last(
    text: str, node: JsonNode, known: Sequence[JsonNode], new: str, *, unit: str, newline: str, depth: int
) -> str:
    """Return the text with a new member or item behind the known ones of an object or a list."""
    inner, outer = newline + unit * depth, newline + unit * (depth - 1)
    if not known:
        inside = text[node.start + 1 : node.end - 1].rstrip()  # a comment stays
        return f"{text[: node.start + 1]}{inside}{inner}{new}{outer}{text[node.end - 1 :]}"
    last = max(known, key=lambda one: one.end)
    behind, comma = node.comma or last.end, "" if node.comma else ","
    if "\n" not in text[node.start : node.end]:
        return f"{text[:behind]}{comma} {new}{text[behind:]}"  # an object on one line stays on one
    # A comment behind the last member stays on its line.
    rest = _LINE_REST.match(text, behind)
    assert rest is not None
    trailing = "," if node.comma else ""
    return f"{text[:behind]}{comma}{text[behind : rest.end()]}{inner}{new}{trailing}{text[rest.end() :]}"


def _dump(value: Any, unit: str, newline: str, depth: int) -> str:
    """Return a value as JSON, indented as what is around it."""
    text = json.dumps(value, ensure_ascii=False, indent=unit)
    return text.replace("\n", newline + unit * depth)


def _indent_unit(text: str, root: JsonNode) -> str:
    """Return how the file indents one level: as its first member, else two spaces."""
    for start in root.names.values():
        line = text[text.rfind("\n", 0, start) + 1 : start]
        if line and not line.strip():
            return line
    return "  "


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else f"{json.dumps(value)[:40]}"
