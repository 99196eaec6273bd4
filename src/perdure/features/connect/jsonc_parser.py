"""Parse JSON with comments and trailing commas, with the place of each value in the text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from perdure.core.errors import InvalidInput

DEPTH_MAX = 200
_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|(?:true|false|null)(?!\w)", re.ASCII)


@dataclass(slots=True)
class JsonNode:
    """A value in a text, from `start` until before `end`.

    Args:
        value: what it is in Python; of several members of one name the last counts.
        places: the members of an object, or the items of a list, in the order of the text.
    """

    start: int
    end: int
    value: Any
    places: list[JsonPlace] = field(default_factory=list)

    def member(self, name: str) -> JsonNode | None:
        """The value of the member of this name; None: there is none."""
        return next((place.node for place in reversed(self.places) if place.name == name), None)


@dataclass(slots=True)
class JsonPlace:
    """A member of an object or an item of a list.

    Args:
        start: where it begins: a member with its name.
        name: of a member; None: it is an item.
        comma: where the comma behind it is; None: there is none.
    """

    start: int
    node: JsonNode
    name: str | None = None
    comma: int | None = None


class _Unreadable(Exception):
    """The text can't be read from a place on."""

    def __init__(self, at: int) -> None:
        self.at = at


def parse_jsonc(text: str) -> JsonNode:
    """Parse a text, which may begin with a byte order mark.

    Raises: InvalidInput: it is no JSON with comments, with the line.
    """
    try:
        node = _value(text, _skip(text, text.startswith("\ufeff")), 0)
        if (end := _skip(text, node.end)) != len(text):
            raise _Unreadable(end)
    except _Unreadable as error:
        line = text.count("\n", 0, error.at) + 1
        found = repr(text[error.at : error.at + 40]) if error.at < len(text) else "it ends there"
        raise InvalidInput(f"line {line} can't be read as JSON: {found}") from None
    return node


def _value(text: str, at: int, depth: int) -> JsonNode:
    if depth > DEPTH_MAX:
        raise _Unreadable(at)
    if text[at : at + 1] == "{":
        return _object(text, at, depth)
    if text[at : at + 1] == "[":
        return _list(text, at, depth)
    if found := _STRING.match(text, at) or _SCALAR.match(text, at):
        return JsonNode(at, found.end(), _load(found[0], at))
    raise _Unreadable(at)


def _object(text: str, at: int, depth: int) -> JsonNode:
    node = JsonNode(at, at, {})
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        if (name := _STRING.match(text, at)) is None:
            raise _Unreadable(at)
        colon = _skip(text, name.end())
        if text[colon : colon + 1] != ":":
            raise _Unreadable(colon)
        member = _value(text, _skip(text, colon + 1), depth + 1)
        key = _load(name[0], at)
        place = JsonPlace(at, member, key)
        node.places.append(place)
        node.value[key] = member.value
        at = _next(text, place, "}")
    node.end = at + 1
    return node


def _list(text: str, at: int, depth: int) -> JsonNode:
    node = JsonNode(at, at, [])
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        place = JsonPlace(at, _value(text, at, depth + 1))
        node.places.append(place)
        node.value.append(place.node.value)
        at = _next(text, place, "]")
    node.end = at + 1
    return node


def _next(text: str, place: JsonPlace, closing: str) -> int:
    """Return where the next member or item, or the closing sign, is; and note the comma before it."""
    at = _skip(text, place.node.end)
    if text[at : at + 1] == closing:
        return at
    if text[at : at + 1] != ",":
        raise _Unreadable(at)
    place.comma = at
    return _skip(text, at + 1)


def _load(text: str, at: int) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _Unreadable(at) from None


def _skip(text: str, at: int) -> int:
    """Return where the first sign is that is no space and no comment."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
