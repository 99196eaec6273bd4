"""Data sets as they are published, read from JSON; what has another shape is refused with file and place."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from perdure.core.errors import InvalidInput
from perdure.scratch import user_path

T = TypeVar("T")

SAMPLES = Path(__file__).with_name("samples")
"""Small files of our own in the shape of each data set."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a JSON document, which knows where it stands: `file: [3].question`."""

    value: Any
    place: str

    def get(self, name: str) -> Node:
        """The field of an object. Raises: InvalidInput: it is no object, or has no such field."""
        found = self.as_a(dict, "an object")
        if name not in found:
            raise InvalidInput(f"{self.place}: the field {name!r} is missing; is this the file as it was published?")
        return Node(found[name], f"{self.place}.{name}")

    def find(self, name: str) -> Node | None:
        """Return the field of an object; None: it is missing or null. Raises: InvalidInput: the value is no object."""
        return None if self.as_a(dict, "an object").get(name) is None else self.get(name)

    def items(self) -> Sequence[Node]:
        """The items of a list. Raises: InvalidInput: it is no list."""
        return [Node(item, f"{self.place}[{at}]") for at, item in enumerate(self.as_a(list, "a list"))]

    @property
    def text(self) -> str:
        """A text or number as text; half a character is `?`. Raises: InvalidInput: it is neither."""
        text = str(self.value) if type(self.value) in (int, float) else self.as_a(str, "a text").strip()
        return text.encode("utf-8", "replace").decode()

    def time(self, *forms: str) -> datetime:
        """A time in one of these forms of `strptime`, in UTC. Raises: InvalidInput."""
        for form in forms:
            try:
                return datetime.strptime(self.text, form).replace(tzinfo=UTC)
            except ValueError:
                continue
        raise InvalidInput(
            f"{self.place}: {self.text!r:.60} is no time such as {datetime(2023, 5, 8, 13, 56):{forms[0]}}"
        )

    def as_a(self, kind: type[T], name: str) -> T:
        """Return the value if it is of this type. `name`: the type in words, for the error. Raises: InvalidInput."""
        if not isinstance(self.value, kind):
            raise InvalidInput(f"{self.place}: it is {json.dumps(self.value)[:60]}, and has to be {name}")
        return self.value


def read_bytes(path: Path) -> bytes:
    """Return what a file holds, unpacked if its name ends in `.gz`. Raises: InvalidInput."""
    try:
        content = user_path(path).read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error


def read_json(path: Path) -> Node:
    """Return the JSON document of a file. Raises: InvalidInput: it is none, or is cut off, with line and column."""
    return _parse(_text(path), path.name)


def read_lines(path: Path) -> Sequence[Node]:
    """Return the documents of a file with one on each line. Raises: InvalidInput, with the line."""
    lines = enumerate(_text(path).split("\n"), 1)
    return [_parse(line, f"{path.name} line {number}") for number, line in lines if line.strip()]


def hash_of(path: Path | None) -> str:
    """Return the SHA-256 of a file; empty: there is none. Raises: InvalidInput."""
    return "" if path is None else hashlib.sha256(read_bytes(path)).hexdigest()


def _text(path: Path) -> str:
    """Return the text of a file in UTF-8. Raises: InvalidInput."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path.name}: byte {error.start + 1} is not UTF-8, so this is no JSON") from error


def _parse(text: str, place: str) -> Node:
    """Return the document of a text. Raises: InvalidInput."""
    try:
        return Node(json.loads(text), place)
    except (ValueError, RecursionError) as error:
        why = (
            f"{error.msg} at line {error.lineno}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise InvalidInput(f"{place}: it is no whole JSON: {why}") from error
