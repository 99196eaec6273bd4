"""Edit JSON with comments as text: what is not changed stays byte for byte.

Editors write their settings with comments, trailing commas, tabs and CRLF; a parser and a dump would lose all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.features.connect.jsonc_parser import JsonNode, JsonPlace, parse_jsonc

_LINE_REST = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*)?")
_BLANK = "\ufeff \t\r\n"


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value at a path of names; objects on the way are made.

    Raises: InvalidInput: the text can't be read, or something on the way is no object.
    """
    if not text.strip(_BLANK):
        text = f"{text}{{}}\n"
    root, newline = parse_jsonc(text), newline_of(text)
    node, unit = root, _indent_unit(text, root)
    for depth, name in enumerate(path):
        if not isinstance(node.value, dict):
            place = ".".join(path[:depth]) or "the file"
            raise InvalidInput(f"{place} is {_kind(node.value)} there and not an object")
        if (found := node.member(name)) is None:
            for key in reversed(path[depth + 1 :]):
                value = {key: value}
            new = f"{json.dumps(name, ensure_ascii=False)}: {_dump(value, unit, newline, depth + 1)}"
            return _insert_last(text, node, new, unit=unit, newline=newline, depth=depth + 1)
        node = found
    if _same(node.value, value):
        return text
    return text[: node.start] + _dump(value, unit, newline, len(path)) + text[node.end :]


def append_item(text: str, path: Sequence[str], item: Any, mark: str) -> str:
    """Return the text with an item in the list at a path of names, which is made if there is none.

    Args:
        mark: a regular expression: an item in which the end of a text matches it, with no other item beside it, is an
            earlier form, and is replaced.
    Raises: InvalidInput: the text can't be read, or there is no list at the path.
    """
    node = find_node(text, path)
    if node is None:
        return set_member(text, path, [item])
    if not isinstance(node.value, list):
        raise InvalidInput(f"{'.'.join(path)} is {_kind(node.value)} there and not a list")
    newline, depth = newline_of(text), len(path) + 1
    unit = _indent_unit(text, parse_jsonc(text))
    for known in node.places:
        if _has_mark(known.node, mark):
            if _same(known.node.value, item):
                return text
            return text[: known.start] + _dump(item, unit, newline, depth) + text[known.node.end :]
    return _insert_last(text, node, _dump(item, unit, newline, depth), unit=unit, newline=newline, depth=depth)


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at a path of names; as it is where there is none.

    Raises: InvalidInput: the text can't be read.
    """
    while (node := find_node(text, path[:-1])) is not None:
        places = [place for place in node.places if place.name == path[-1]]
        if not places:
            break
        text = _cut(text, node, places[-1])  # a name may stand there twice
    return text


def remove_item(text: str, path: Sequence[str], mark: str) -> str:
    """Return the text without the items of a list that have a mark; see `append_item`. Raises: InvalidInput."""
    while (node := find_node(text, path)) is not None:
        places = [place for place in node.places if place.name is None and _has_mark(place.node, mark)]
        if not places:
            break
        text = _cut(text, node, places[0])
    return text


def find_node(text: str, path: Sequence[str]) -> JsonNode | None:
    """Return the value at a path of names; None: there is none. Raises: InvalidInput: the text can't be read."""
    if not text.strip(_BLANK):
        return None
    node: JsonNode | None = parse_jsonc(text)
    for name in path:
        if node is None or not isinstance(node.value, dict):
            return None
        node = node.member(name)
    return node


def newline_of(text: str) -> str:
    """Return how the text ends its lines."""
    return "\r\n" if "\r\n" in text else "\n"


def _cut(text: str, inside: JsonNode, place: JsonPlace) -> str:
    """Return the text without a member or item of `inside`, without a comma of it, and without its lines."""
    start, end = place.start, place.node.end
    if place.comma is not None:
        end = place.comma + 1
    else:  # the last one: the comma before it goes too
        before = [one.comma for one in inside.places if one.comma is not None and one.comma < start]
        if before:
            text = text[: before[-1]] + text[before[-1] + 1 :]
            start, end = start - 1, end - 1
    line = text.rfind("\n", 0, start) + 1
    rest = _LINE_REST.match(text, end)
    assert rest is not None
    if line and not text[line:start].strip() and text[rest.end() : rest.end() + 2].startswith(("\n", "\r\n")):
        start, end = line - (2 if text[line - 2 : line] == "\r\n" else 1), rest.end()  # its lines go whole
    return text[:start] + text[end:]


def _insert_last(text: str, node: JsonNode, new: str, *, unit: str, newline: str, depth: int) -> str:
    """Return the text with a new member or item behind the others of an object or a list."""
    inner, outer = newline + unit * depth, newline + unit * (depth - 1)
    if not node.places:
        inside = text[node.start + 1 : node.end - 1].rstrip()  # a comment stays
        return f"{text[: node.start + 1]}{inside}{inner}{new}{outer}{text[node.end - 1 :]}"
    last = node.places[-1]
    behind = last.node.end if last.comma is None else last.comma + 1
    comma = "," if last.comma is None else ""
    if "\n" not in text[node.start : node.end]:
        return f"{text[:behind]}{comma} {new}{text[behind:]}"  # an object on one line stays on one
    # A comment behind the last member stays on its line.
    rest = _LINE_REST.match(text, behind)
    assert rest is not None
    trailing = "" if last.comma is None else ","
    return f"{text[:behind]}{comma}{text[behind : rest.end()]}{inner}{new}{trailing}{text[rest.end() :]}"


def _dump(value: Any, unit: str, newline: str, depth: int) -> str:
    """Return a value as JSON, indented as what is around it."""
    text = json.dumps(value, ensure_ascii=False, indent=unit)
    return text.replace("\n", newline + unit * depth)


def _indent_unit(text: str, root: JsonNode) -> str:
    """Return how the file indents one level: as its first member, else two spaces."""
    for place in root.places:
        line = text[text.rfind("\n", 0, place.start) + 1 : place.start]
        if line and not line.strip(" \t"):
            return line
    return "  "


def _has_mark(node: JsonNode, mark: str) -> bool:
    """Whether the end of a text in the value matches the mark, and no list in it holds anything beside that: what a
    person has added to an item of ours makes it theirs."""
    return any(isinstance(leaf, str) and re.search(rf"(?:{mark})\Z", leaf) for leaf in _leaves(node.value))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the texts and numbers in a value; nothing of one with a list of several items."""
    if isinstance(value, list):
        yield from _leaves(value[0]) if len(value) == 1 else ()
    elif isinstance(value, dict):
        for one in value.values():
            yield from _leaves(one)
    else:
        yield value


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 is not true, nor 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else json.dumps(value)[:40]
