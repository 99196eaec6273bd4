"""Edit JSON with comments as text: what is not changed stays byte for byte.

Editors write their settings with comments, trailing commas, tabs and CRLF; a parser and a dump would lose all of it. So
places are found in a copy that is plain JSON, with spaces where comments and trailing commas are, and the text is cut
there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import InvalidInput

# A text in quotes is matched too, so that signs in it count as nothing else.
_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\Z)'
_COMMENT = re.compile(rf"({_STRING})|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"((?:{_STRING}|[\w.}}\]])[ \t\r\n]*),(?=[ \t\r\n]*[}}\]])|{_STRING}", re.DOTALL)
_SPACE, _COLON = re.compile(r"[ \t\r\n]*"), re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_LINE_REST = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*)?")
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value in a text.

    Args:
        begin: where it begins: a member of an object with its name.
        start, end: of the value itself.
        value: what it is in Python; of several members of one name the last counts.
        name: of a member; None: it is an item of a list, or the whole.
        comma: where the comma behind it is; None: there is none.
    """

    begin: int
    start: int
    end: int
    value: Any
    name: str | None = None
    comma: int | None = None


class JsonText:
    """A text, which may begin with a byte order mark, and the places of its values. An empty one is an empty object.

    Raises: InvalidInput: it is no JSON with comments, with the line.
    """

    def __init__(self, text: str) -> None:
        self.text = text = text if text.strip("\ufeff \t\r\n") else f"{text}{{}}\n"
        self.newline = "\r\n" if "\r\n" in text else "\n"
        marked = text[:1].replace("\ufeff", " ") + text[1:]
        self._bare = _COMMENT.sub(lambda found: found[1] or " " * len(found[0]), marked)
        self._plain = _TRAILING_COMMA.sub(lambda found: f"{found[1]} " if found[1] else found[0], self._bare)
        try:
            value = json.loads(self._plain)
        except (ValueError, RecursionError) as error:
            at = getattr(error, "pos", 0)
            line = text.count("\n", 0, at) + 1
            found = repr(text[at : at + 40]) if at < len(text) else "it ends there"
            raise InvalidInput(f"line {line} can't be read as JSON: {found}") from None
        start = _end_of(_SPACE, self._plain, 0)
        self.root = JsonNode(start, start, len(self._plain.rstrip()), value)
        # One level is indented as the first member that has a line of its own, else by two spaces.
        lines = (text[text.rfind("\n", 0, one.begin) + 1 : one.begin] for one in self.inside(self.root))
        self._indent = next((line for line in lines if line and not line.strip(" \t")), "  ")

    def inside(self, node: JsonNode) -> list[JsonNode]:
        """Return the members of an object or the items of a list, in the order of the text; of others nothing."""
        found: list[JsonNode] = []
        last = node.end - 1
        at = _end_of(_SPACE, self._plain, node.start + 1) if isinstance(node.value, dict | list) else last
        while at < last:
            begin, name = at, None
            if isinstance(node.value, dict):
                name, at = _decode(self._plain, at)
                at = _end_of(_COLON, self._plain, at)
            value, end = _decode(self._plain, at)
            behind = _end_of(_SPACE, self._bare, end)
            comma = behind if self._bare[behind] == "," else None
            found.append(JsonNode(begin, at, end, value, name, comma))
            at = behind if comma is None else _end_of(_SPACE, self._plain, behind + 1)
        return found

    def find(self, path: Sequence[str]) -> JsonNode | None:
        """Return the value at a path of names; None: there is none."""
        node: JsonNode | None = self.root
        for name in path:
            node = None if node is None else self.member(node, name)
        return node

    def member(self, node: JsonNode, name: str) -> JsonNode | None:
        """Return the value of the member of this name; None: there is none."""
        return next((one for one in reversed(self.inside(node)) if one.name == name), None)

    def dump(self, value: Any, depth: int) -> str:
        """Return a value as JSON, indented as what is around it."""
        text = json.dumps(value, ensure_ascii=False, indent=self._indent)
        return text.replace("\n", self.newline + self._indent * depth)

    def with_value(self, node: JsonNode, value: Any, depth: int) -> str:
        """Return the text with another value at the place of one; as it is if they are the same: 1 is not true."""
        if json.dumps(node.value, sort_keys=True) == json.dumps(value, sort_keys=True):
            return self.text
        return self.text[: node.start] + self.dump(value, depth) + self.text[node.end :]

    def with_last(self, node: JsonNode, new: str, depth: int) -> str:
        """Return the text with a new member or item behind the others of an object or a list."""
        text, places = self.text, self.inside(node)
        inner, outer = (self.newline + self._indent * one for one in (depth, depth - 1))
        if not places:
            inside = text[node.start + 1 : node.end - 1].rstrip()  # a comment stays
            return f"{text[: node.start + 1]}{inside}{inner}{new}{outer}{text[node.end - 1 :]}"
        last = places[-1]
        behind, comma, trailing = (last.end, ",", "") if last.comma is None else (last.comma + 1, "", ",")
        if "\n" not in text[node.start : node.end]:
            return f"{text[:behind]}{comma} {new}{text[behind:]}"  # an object on one line stays on one
        rest = _end_of(_LINE_REST, text, behind)  # a comment behind the last member stays on its line
        return f"{text[:behind]}{comma}{text[behind:rest]}{inner}{new}{trailing}{text[rest:]}"

    def without(self, node: JsonNode, place: JsonNode) -> str:
        """Return the text without a member or item of `node`, without a comma of it, and without its lines."""
        text, start, end = self.text, place.begin, place.end
        before = [one.comma for one in self.inside(node) if one.comma is not None]
        if place.comma is not None:
            end = place.comma + 1
        elif before:  # it is the last one: the comma before it goes too
            text, start, end = text[: before[-1]] + text[before[-1] + 1 :], start - 1, end - 1
        line, rest = text.rfind("\n", 0, start) + 1, _end_of(_LINE_REST, text, end)
        if line and not text[line:start].strip() and text.startswith(("\n", "\r\n"), rest):
            start, end = line - (2 if text[line - 2 : line] == "\r\n" else 1), rest  # its lines go whole
        return text[:start] + text[end:]


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value at a path of names; objects on the way are made.

    Raises: InvalidInput: the text can't be read, or something on the way is no object.
    """
    document = JsonText(text)
    node = document.root
    for depth, name in enumerate(path):
        if not isinstance(node.value, dict):
            place = ".".join(path[:depth]) or "the file"
            raise InvalidInput(f"{place} is {_kind(node.value)} there and not an object")
        if (found := document.member(node, name)) is None:
            for key in reversed(path[depth + 1 :]):
                value = {key: value}
            new = f"{json.dumps(name, ensure_ascii=False)}: {document.dump(value, depth + 1)}"
            return document.with_last(node, new, depth + 1)
        node = found
    return document.with_value(node, value, len(path))


def append_item(text: str, path: Sequence[str], item: Any, mark: str) -> str:
    """Return the text with an item in the list at a path of names, which is made if there is none.

    Args:
        mark: a regular expression: an item in which a whole text matches it, with no other item beside it, is an
            earlier form, and is replaced.
    Raises: InvalidInput: the text can't be read, or there is no list at the path.
    """
    document = JsonText(text)
    if (node := document.find(path)) is None:
        return set_member(text, path, [item])
    if not isinstance(node.value, list):
        raise InvalidInput(f"{'.'.join(path)} is {_kind(node.value)} there and not a list")
    depth = len(path) + 1
    for known in document.inside(node):
        if _has_mark(known.value, mark):
            return document.with_value(known, item, depth)
    return document.with_last(node, document.dump(item, depth), depth)


def find_item(text: str, path: Sequence[str], mark: str) -> Any:
    """Return the first item of a list that has a mark, see `append_item`; None: there is none. Raises: InvalidInput."""
    node = (document := JsonText(text)).find(path)
    places = [] if node is None else document.inside(node)
    return next((one.value for one in places if one.name is None and _has_mark(one.value, mark)), None)


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at a path of names; as it is where there is none.

    Raises: InvalidInput: the text can't be read.
    """
    return _remove(text, path[:-1], lambda place: place.name == path[-1])


def remove_item(text: str, path: Sequence[str], mark: str) -> str:
    """Return the text without the items of a list that have a mark; see `append_item`. Raises: InvalidInput."""
    return _remove(text, path, lambda place: place.name is None and _has_mark(place.value, mark))


def _remove(text: str, path: Sequence[str], is_meant: Callable[[JsonNode], bool]) -> str:
    """Return the text without the members or items that are meant, in the value at a path of names."""
    while (node := (document := JsonText(text)).find(path)) is not None:
        places = [place for place in document.inside(node) if is_meant(place)]
        if not places:
            break
        text = document.without(node, places[-1])  # a name may stand there twice
    return text


def _has_mark(value: Any, mark: str) -> bool:
    """Whether a text in the value matches the mark, and no list in it holds anything beside that: what a
    person has added to an item of ours makes it theirs."""
    if isinstance(value, list):
        return len(value) == 1 and _has_mark(value[0], mark)
    if isinstance(value, dict):
        return any(_has_mark(one, mark) for one in value.values())
    return isinstance(value, str) and re.fullmatch(mark, value) is not None


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else json.dumps(value)[:40]


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where the match of a pattern ends that matches in any case."""
    found = pattern.match(text, at)
    assert found is not None
    return found.end()
