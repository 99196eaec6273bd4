"""JSON texts: written without escapes for other scripts' letters, and a string that is read while it is written."""

from __future__ import annotations

import json
import re
from typing import Any

compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Return a value as JSON without spaces."""

sorted_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
"""Return a value as JSON without spaces, the same whatever order its keys came in."""

spaced_json = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": ")).encode
"""Return a value as JSON with a space after each comma and colon."""


def json_start(value: object, chars: int = 80) -> str:
    """Return the first `chars` characters of a value's JSON, for an error text; of a value without JSON its `repr`."""
    try:
        return encodable(json.dumps(value, ensure_ascii=False))[:chars]
    except (TypeError, ValueError):
        return repr(value)[:chars]


def json_or(text: str | bytes, other: Any) -> Any:
    """Return the value of a JSON text; `other`: it is no JSON, or nested too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return other


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """Return the object that a JSON text is; None: it is another value, or none."""
    value = json_or(text, None)
    return value if isinstance(value, dict) else None


def encodable(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate; surrogate pairs become their character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


_RUN = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})+"
)
"""What can be decoded by itself: letters and whole escapes."""

_BEGUN = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?))?"
)
"""An escape, or a pair of them, that more text may complete."""

_LONE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")


class StringMember:
    """Reads the member `name` of a JSON object, if it is a string, from the pieces of the object's text as they come.

    The first member of the name counts, and only one of the object itself, not of an inner one. A text that breaks off,
    or is no JSON, gives what stands before.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = ""  # not read yet
        self._place = "object"
        self._depth = 0
        self._key: list[str] = []
        self.has_begun = False
        """Whether the string has begun; it may be empty."""

    @property
    def has_ended(self) -> bool:
        """Whether the string is complete, or can't come any more."""
        return self._place == "end"

    def read(self, piece: str) -> str:
        """Return the part of the string that the next `piece` of the object's text completes; often empty."""
        text, self._rest = self._rest + piece, ""
        found: list[str] = []
        at = 0
        while at < len(text) and self._place != "end":
            if self._place in ("key", "string", "other string"):
                at = self._read_string(text, at, found)
            else:
                self._read_mark(text[at])
                at += 1
        return "".join(found)

    def _read_string(self, text: str, at: int, found: list[str]) -> int:
        """Read a part of a string in `text` from the index `at`, into `found` or the key; return the index after it."""
        if text[at] == '"':
            self._end_string()
            return at + 1
        if run := _RUN.match(text, at):
            escaped = run.group()
            self._take(encodable(json.loads(f'"{escaped}"', strict=False) if "\\" in escaped else escaped), found)
            return run.end()
        if _BEGUN.fullmatch(text, at):
            self._rest = text[at:]
            return len(text)
        if lone := _LONE.match(text, at):
            self._take("\N{REPLACEMENT CHARACTER}", found)
            return lone.end()
        self._place = "end"  # no JSON
        return len(text)

    def _take(self, text: str, found: list[str]) -> None:
        """Add a decoded part of a key to the key, and of the wanted string to `found`."""
        if self._place == "key":
            self._key.append(text)
        elif self._place == "string":
            found.append(text)

    def _end_string(self) -> None:
        """Go on after the quote that ends the wanted string, a key or another string."""
        if self._place == "string":
            self._place = "end"
        elif self._place == "key":
            self._place = "value" if "".join(self._key) == self._name else "other value"
            self._key = []
        else:
            self._place = "other value"

    def _read_mark(self, mark: str) -> None:
        """Go on after one character outside strings."""
        if mark.isspace() or (self._place == "value" and mark == ":"):
            return
        match self._place:
            case "object":
                self._place = "members" if mark == "{" else "end"
            case "members":
                self._place = "key" if mark == '"' else "end"
            case "value":
                self.has_begun = mark == '"'
                self._place = "string" if self.has_begun else "end"
            case _ if mark == '"':
                self._place = "other string"
            case _ if mark in "{[":
                self._depth += 1
            case _ if mark in "}]":
                self._depth -= 1
                self._place = "end" if self._depth < 0 else self._place
            case _ if mark == "," and not self._depth:
                self._place = "members"
            case _:
                pass


def read_string(text: str, name: str) -> str | None:
    """Return the string member `name` of a JSON object, whose text may break off; None: there is none."""
    member = StringMember(name)
    found = member.read(text)
    return found if member.has_begun else None
