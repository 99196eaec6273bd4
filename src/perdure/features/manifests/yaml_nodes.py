"""YAML read with the line of each value, within limits on its size, its depth and what its aliases stand for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml

from perdure.core.errors import InvalidInput
from perdure.features.manifests.values import FileLine

FILE_CHARS = 2_000_000
DEPTH_MAX = 20
VALUES_MAX = 100_000
"""The most values of a file, with each alias counted as what it stands for."""
TEXT_CHARS = 10_000_000
"""The most characters of all its texts, counted in the same way."""
_CORE = "tag:yaml.org,2002:"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader that keeps dates as texts."""

    yaml_implicit_resolvers: ClassVar = {
        first: [one for one in resolvers if one[0] != f"{_CORE}timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands. `value`: a text, number, True, False or None; a dict of nodes by their keys; a list
    of nodes. `keys`: where each key of a dict stands."""

    value: Any
    place: FileLine
    keys: dict[str, FileLine] = field(default_factory=dict)

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: one.plain() for key, one in self.value.items()}
        return [one.plain() for one in self.value] if isinstance(self.value, list) else self.value


def read_documents(text: str, file: str) -> Iterator[Node]:
    """Yield the documents of a file; empty ones are left out. Raises: InvalidInput, with file and line."""
    if len(text) > FILE_CHARS:
        raise InvalidInput(f"{file}: the file has {len(text):,} characters, the limit is {FILE_CHARS:,}")
    try:
        _check_events(text, file)
        loader = _Loader(text)
        try:
            reader = _Reader(loader, file)
            while loader.check_node():
                if (node := reader.read(loader.get_node(), 1)).value is not None:
                    yield node
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidInput(
            f"{FileLine(file, mark.line + 1 if mark else 1)}: {error.problem or error.context}"
        ) from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{file}: no YAML: {' '.join(str(error).split())[:200]}") from error


def _check_events(text: str, file: str) -> None:
    """Check how deep a file is nested, and that it has no tags, before anything is made of it. Raises: InvalidInput,
    YAMLError."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        place = FileLine(file, event.start_mark.line + 1)
        if getattr(event, "tag", None) and not isinstance(event, yaml.DocumentStartEvent):
            raise InvalidInput(f"{place}: the tag {event.tag!r:.60} is not allowed: write the value alone, or quote it")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise InvalidInput(f"{place}: values are nested more than {DEPTH_MAX} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Reader:
    """Makes `Node`s of the nodes of a loader, and counts them."""

    def __init__(self, loader: Any, file: str) -> None:
        self._loader, self._file, self._count, self._chars = loader, file, 0, 0

    def read(self, node: Any, depth: int) -> Node:
        """Return a node with all in it. Raises: InvalidInput: there is too much, it is too deep, or a key is there
        twice or no text."""
        place = FileLine(self._file, node.start_mark.line + 1)
        self._count += 1
        if self._count > VALUES_MAX or self._chars > TEXT_CHARS:
            raise InvalidInput(
                f"{place}: the file stands for more than {VALUES_MAX:,} values or {TEXT_CHARS:,} characters, its"
                " aliases (`*`) included"
            )
        if depth > DEPTH_MAX:  # an alias may stand for a value that it is in itself
            raise InvalidInput(f"{place}: values are nested more than {DEPTH_MAX} levels deep")
        if isinstance(node, yaml.ScalarNode):
            self._chars += len(node.value)
            return Node(self._scalar(node, place), place)
        if isinstance(node, yaml.SequenceNode):
            return Node([self.read(one, depth + 1) for one in node.value], place)
        found, keys = dict[str, Node](), dict[str, FileLine]()
        for key_node, value_node in node.value:
            at = FileLine(self._file, key_node.start_mark.line + 1)
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_CORE}merge":
                raise InvalidInput(f"{at}: a key is no text: merge keys (`<<`), lists and objects are not taken as one")
            if (key := key_node.value) in found:
                raise InvalidInput(f"{at}: {key!r:.80} is there twice: it was on line {keys[key].line} before")
            self._chars += len(key)
            found[key], keys[key] = self.read(value_node, depth + 1), at
        return Node(found, place, keys)

    def _scalar(self, node: Any, place: FileLine) -> Any:
        """Return the value of a scalar. Raises: InvalidInput: it can't be stored as JSON."""
        try:
            value = self._loader.construct_object(node)
        except ValueError as error:  # such as too many digits
            raise InvalidInput(f"{place}: the value {node.value!r:.80} can't be read: {error}") from error
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput(f"{place}: the number {node.value!r:.80} is not finite")
        if not isinstance(value, str | int | float | bool | None):
            raise InvalidInput(f"{place}: the value {node.value!r:.80} is of no type that can be used: quote it")
        return value
