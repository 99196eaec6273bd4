"""Objects in answers of models, read as far as they go: JSON, and what small models write in its place."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from perdure.core.text.json_strings import encodable

DEPTH_MAX = 50
_START = re.compile(r"\{|<(?P<thought>think|thinking|thought|reasoning)>|</(?:think|thinking|thought|reasoning)>")
_GAP = re.compile(r"(?:\s+|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_QUOTES = {'"': '"', "'": "'", "“": "”", "„": "“", "「": "」"}
_KEY_ENDS = re.compile(r"\s*:")
_TEXT_ENDS = re.compile(
    r"\s*(?:\Z|[}\]]|//|#|/\*|,\s*(?:\Z|[\"'“„「{\[}\],]|//|#|/\*|-?\d|true\b|false\b|null\b|[A-Za-z_]\w*\s*:))"
)
"""What stands behind the quote that ends a text: one in the midst of it is part of it."""
_WORD = re.compile(r"[A-Za-z_]\w*|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def read_objects(text: str) -> tuple[list[dict[str, Any]], bool]:
    """Return (the JSON objects in a text, except those among thoughts; whether the last of them is whole). Of one that
    breaks off, or goes on in no way that can be read, the whole values before are returned.

    >>> read_objects("<think>{}</think> Here: {'facts': [{'a': 1,}, {'b': 'on") ([{'facts': [{'a': 1}]}], False)
    """
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)], True
    found: list[dict[str, Any]] = []
    at, whole = 0, True
    while start := _START.search(text, at):
        at = start.end()
        if name := start["thought"]:
            end = text.find(f"</{name}>", at)
            at = len(text) if end < 0 else text.index(">", end)
        elif start[0] != "{":
            found = []  # thoughts whose beginning was in the prompt
        else:
            reader = _Reader(text, at)
            value, is_closed = reader.members(1)
            at = reader.at
            if value or is_closed:
                found.append(value)
                whole = is_closed
    return found, whole


class _Reader:
    """Reads values of loose JSON in `text` from the index `at` on, which moves. Each method of a value returns (what it
    read, whether that is whole); `depth` is how deep the value nests, up to `DEPTH_MAX`."""

    def __init__(self, text: str, at: int) -> None:
        self._text, self.at = text, at

    def members(self, depth: int) -> tuple[dict[str, Any], bool]:
        """Read the members of an object, up to and with its closing bracket: (name -> value, whether it was closed)."""
        members: dict[str, Any] = {}
        while (sign := self._next()) and sign != "}":
            key, whole = self._string(sign, _KEY_ENDS) if sign in _QUOTES else self._word()
            if not whole or not isinstance(key, str) or self._next() != ":":
                return members, False
            self.at += 1
            value, whole = self._value(depth)
            if whole or isinstance(value, dict | list):
                members[key] = value
            if not whole or not self._goes_on():
                return members, False
        self.at += bool(sign)
        return members, bool(sign)

    def _items(self, depth: int) -> tuple[list[Any], bool]:
        """Read the items of an array, up to and with its closing bracket: (items, whether it was closed)."""
        items: list[Any] = []
        while (sign := self._next()) and sign != "]":
            value, whole = self._value(depth)
            if whole:
                items.append(value)
            if not whole or not self._goes_on():
                return items, False
        self.at += bool(sign)
        return items, bool(sign)

    def _value(self, depth: int) -> tuple[Any, bool]:
        """Read any value: (the value, whether it is whole)."""
        sign = self._next()
        if sign in _QUOTES:
            return self._string(sign, _TEXT_ENDS)
        if sign and sign in "{[" and depth < DEPTH_MAX:
            self.at += 1
            return self.members(depth + 1) if sign == "{" else self._items(depth + 1)
        word, whole = self._word()
        if not whole or self.at == len(self._text):  # a number may go on
            return None, False
        if word in _WORDS:
            return _WORDS[word], True
        try:
            return json.loads(word), True
        except ValueError:
            return None, False

    def _string(self, sign: str, ends: re.Pattern[str]) -> tuple[str, bool]:
        """Read a quoted text; return (the text, whether it was closed). `sign`: the opening quote; `ends`: what may
        follow the closing one, as small models don't escape quotes inside."""
        start = at = self.at + 1
        marks = re.compile(rf"\\.|{_QUOTES[sign]}", re.DOTALL)
        while mark := marks.search(self._text, at):
            at = mark.end()
            if mark[0][0] != "\\" and ends.match(self._text, at):
                self.at = at
                return encodable(_ESCAPE.sub(_unescaped, self._text[start : at - 1])), True
        self.at = len(self._text)
        return "", False

    def _word(self) -> tuple[str, bool]:
        """Read a word or number without quotes; return (its text, whether there is one)."""
        found = _WORD.match(self._text, self.at)
        self.at = found.end() if found else self.at
        return (found[0], True) if found else ("", False)

    def _goes_on(self) -> bool:
        """Skip commas; return whether the object or array can continue or end here, by what surrounds them."""
        before = self._text[self.at - 1]
        sign = self._next()
        while sign == ",":
            self.at += 1
            sign, before = self._next(), "]"
        return before in "}]" or sign in "}]"

    def _next(self) -> str:
        """Skip white space and comments, and return the next character without taking it; empty: the text ends."""
        gap = _GAP.match(self._text, self.at)
        self.at = gap.end() if gap else self.at
        return self._text[self.at : self.at + 1]


def _unescaped(escape: re.Match[str]) -> str:
    """Return the character that a match of `_ESCAPE` stands for."""
    body = escape[1]
    return chr(int(body[1:], 16)) if len(body) == 5 else _ESCAPED.get(body, body)
