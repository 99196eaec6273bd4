"""Where in a file something stands, for errors that name the file and the line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from perdure.core.errors import InvalidInput
from perdure.core.incoming.json_limits import JsonLimits, parse_json

FILE_BYTES = 256_000
_LIMITS = JsonLimits(size_bytes=FILE_BYTES, depth=20)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast


class FileInvalid(InvalidInput):
    """A file can't be used. `line`: the line to blame, from 1; 0: none."""

    def __init__(self, path: str | Path, line: int, why: str) -> None:
        super().__init__(f"{path}:{line}: {why}" if line else f"{path}: {why}")
        self.path, self.line, self.why = str(path), line, why


@dataclass(frozen=True, slots=True)
class JsonPart:
    """A value in a file of JSON. `keys`: how it is reached from the outermost value."""

    file: str
    text: str
    value: Any
    keys: Sequence[str | int] = ()

    def at(self, key: str | int) -> JsonPart:
        """Return the value at an existing key of this value."""
        return replace(self, value=self.value[key], keys=(*self.keys, key))

    def parts(self) -> Iterator[JsonPart]:
        """Yield the items of this value if it is a list, else the value itself."""
        yield from map(self.at, range(len(self.value))) if isinstance(self.value, list) else [self]

    def error(self, why: str, *keys: str | int) -> FileInvalid:
        """Return an error about the value at these keys of this one, or about this one."""
        keys = (*self.keys, *keys)
        place = ".".join(map(str, keys))
        return FileInvalid(self.file, _line_of(self.text, keys), f"{place}: {why}" if place else why)


def read_json(folder: Path, path: str) -> JsonPart:
    """Return what a file of a folder holds. Raises: FileInvalid: it can't be read, is no JSON, or is too large."""
    try:
        with (folder / path).open("rb") as file:
            data = file.read(FILE_BYTES + 1)
        text = data.decode("utf-8-sig")
        return JsonPart(path, text, parse_json(text, _LIMITS))
    except UnicodeDecodeError as error:
        raise FileInvalid(path, data.count(b"\n", 0, error.start) + 1, "it is not text in UTF-8") from error
    except (OSError, ValueError) as error:
        raise FileInvalid(path, getattr(error, "lineno", 0), f"it can't be used: {error}") from error


def _line_of(text: str, keys: Sequence[str | int]) -> int:
    """Return the line of the value at these keys of a JSON text; if it is missing, of the value around it."""
    try:
        # JSON is YAML but for tabs, which stand between values only.
        node = yaml.compose(text.replace("\t", " "), Loader=_LOADER)
    except (yaml.YAMLError, RecursionError):  # such as keys of more than 1,024 characters
        return 0
    line = 0 if node is None else node.start_mark.line + 1
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = [pair for pair in node.value if pair[0].value == str(key)]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            found = [(node, one) for one in node.value[key : key + 1]]
        else:
            found = []
        if not found:
            break
        name, node = found[-1]
        line = (name if name is not node and isinstance(name, yaml.ScalarNode) else node).start_mark.line + 1
    return line
