"""Edit JSON with comments as text: what is not changed stays byte for byte.

Editors write their settings with comments, trailing commas, tabs and CRLF; a parser and a dump would lose all of it. So
places are found in a copy that is plain JSON, with spaces where comments and trailing commas are, and the text is cut
there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
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
Step = str | re.Pattern[str]
"""What leads into a value: the name of a member of an object, or the mark of an item of a list."""


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

    def find(self, path: Sequence[Step]) -> JsonNode | None:
        """Return the node at a path; None: there is no such value."""
        node: JsonNode | None = self.root
        for step in path:
            node = None if node is None else self.child(node, step)
        return node

    def child(self, node: JsonNode, step: Step) -> JsonNode | None:
        """Return the member or item that a step names; None: there is none."""
        places = self.inside(node)
        if isinstance(step, str):
            return next((one for one in reversed(places) if one.name == step), None)
        return next((one for one in places if one.name is None and _has_mark(one.value, step)), None)

    def dump(self, value: Any, depth: int) -> str:
        """Return a value as JSON, indented as what is around it."""
        text = json.dumps(value, ensure_ascii=False, indent=self._indent)
        return text.replace("\n", self.newline + self._indent * depth)

    def with_value(self, node: JsonNode, value: Any, depth: int) -> str:
        """Return the text with the node's value replaced; unchanged if both are the same JSON (1 is not true)."""
        if json.dumps(node.value, sort_keys=True) == json.dumps(value, sort_keys=True):
            return self.text
        return self.text[: node.start] + self.dump(value, depth) + self.text[node.end :]

    def with_last(self, node: JsonNode, name: str | None, value: Any, depth: int) -> str:
        """Return the text with a new member of this name behind the others of an object, or item of a list."""
        new = ("" if name is None else f"{json.dumps(name, ensure_ascii=False)}: ") + self.dump(value, depth)
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


def set_value(text: str, names: Sequence[str], value: Any, mark: str = "") -> str:
    """Return the text with a value at a path of names; objects on the way are made.

    Args:
        mark: not empty: there is a list, or is made, and the value is an item of it. This is a regular expression: an
            item in which a whole text matches it, with no other item beside it, is an earlier form, and is replaced.
    Raises: InvalidInput: the text can't be read, or something on the way is no object, or no list.
    """
    document = JsonText(text)
    node, path = document.root, _path(names, mark)
    for depth, step in enumerate(path, start=1):
        name, kind, what = (step, dict, "an object") if isinstance(step, str) else (None, list, "a list")
        if not isinstance(node.value, kind):
            place = ".".join(names[: depth - 1]) or "the file"
            raise InvalidInput(f"{place} is {_kind(node.value)} there and not {what}")
        if (found := document.child(node, step)) is None:
            for inner in reversed(path[depth:]):
                value = {inner: value} if isinstance(inner, str) else [value]
            return document.with_last(node, name, value, depth)
        node = found
    return document.with_value(node, value, len(path))


def remove_value(text: str, names: Sequence[str], mark: str = "", *, with_empty: bool = False) -> str:
    """Return the text without the member at a path of names, or without the items of the list there that match `mark`;
    unchanged if there is none. `with_empty`: what is empty then goes too. Raises: InvalidInput: the text can't be read.
    """
    before, (*above, last) = text, _path(names, mark)
    while (node := (document := JsonText(text)).find(above)) and (place := document.child(node, last)):
        text = document.without(node, place)  # a name may stand there twice
    if with_empty and text != before and above and node is not None and not node.value:
        return remove_value(text, names[: len(above)], with_empty=True)
    return text


def put_back(text: str, before: str, names: Sequence[str], mark: str = "") -> str:
    """Return the text with `before`'s value, if any, at a place, addressed as in `set_value`. Raises: InvalidInput."""
    earlier = JsonText(before).find(_path(names, mark))
    return remove_value(text, names, mark) if earlier is None else set_value(text, names, earlier.value, mark)


def _path(names: Sequence[str], mark: str) -> Sequence[Step]:
    return [*names, *([re.compile(mark)] if mark else [])]


def _has_mark(value: Any, mark: re.Pattern[str]) -> bool:
    """Whether an entry is ours: a text in it matches `mark`, and no list in it holds a further item of a person."""
    if isinstance(value, list):
        return len(value) == 1 and _has_mark(value[0], mark)
    if isinstance(value, dict):
        return any(_has_mark(one, mark) for one in value.values())
    return isinstance(value, str) and mark.fullmatch(value) is not None


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else json.dumps(value)[:40]


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where the match of a pattern ends that matches in any case."""
    found = pattern.match(text, at)
    assert found is not None
    return found.end()
