"""The largest request that each route of the server takes, made from its OpenAPI document: every list as long as it may
be, every text long, all of it within the limit of a body."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = Mapping[str, Any]

METHODS = ("post", "put", "patch", "delete")
"""Those of routes that write."""


@dataclass(frozen=True)
class Operation:
    """A route as the document has it; `body` is the schema of its JSON, if it takes any."""

    method: str
    path: str
    body: Shape | None

    @property
    def name(self) -> str:
        return f"{self.method.upper()} {self.path}"


ADMINISTRATION = ("/v1/keys/", "/v1/users/", "/v1/organizations/")
"""Their requests write a row or two; and a first key closes a server that was open to everybody on its machine."""


def operations(document: Shape) -> list[Operation]:
    """Every route that may write, but for those of older names, which are the same functions. Those that delete come
    last, what is within something before it, an agent at last."""
    found = [
        Operation(
            method, path, shape.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        )
        for path, shapes in document["paths"].items()
        for method, shape in shapes.items()
        if method in METHODS and not shape.get("deprecated") and not path.startswith(ADMINISTRATION)
    ]
    return sorted(found, key=_place)


def _place(operation: Operation) -> tuple[bool, bool, int]:
    """Where an operation comes among the others, as a key to sort by."""
    deletes = operation.method == "delete"
    return deletes, deletes and operation.path == "/v1/agents/{agent_id}", -len(operation.path) if deletes else 0


def words(count: int, *, seed: int = 1) -> str:
    """So many words that are all different: the worst for an index of words."""
    digits = random.Random(seed)
    return " ".join(f"{digits.getrandbits(30):x}" for _ in range(count))


@dataclass
class Text:
    """A text whose length is chosen when all of them are known."""

    most: int


@dataclass
class Largest:
    """Bodies of at most `size` characters.

    Args:
        document: the OpenAPI document.
        known: field, or model and field with a dot between -> what stands in its place: a value, or a function of the
            item's number; `field[]` is an item of a list.
        most: field -> how long its texts may be, in characters; what is not named may take all that is left.
        items: about so many a body has: lists within others are shorter where it would be more, so that there is room
            for texts.
    """

    document: Shape
    known: Mapping[str, Any]
    most: Mapping[str, int]
    size: int
    items: int = 20_000
    _pool: str = field(default="", init=False)

    def body(self, operation: Operation) -> Any:
        """The largest body of a route."""
        assert operation.body is not None
        self._pool = self._pool or words(self.size // 7)
        made = self._value(operation.body, "", 0, self.items)
        leaves = [*_leaves(made)]
        texts = [one for one in leaves if isinstance(one, Text)]
        share, left = 0, self.size - sum(4 + len(str(one)) for one in leaves if not isinstance(one, Text))
        for count, text in zip(itertools.count(len(texts), -1), sorted(texts, key=lambda one: one.most), strict=False):
            share = min(text.most, max(1, left // count - 4))
            text.most, left = share, left - share - 4
        starts = itertools.count()
        return _filled(made, lambda text: self._slice(next(starts), text.most))

    def _slice(self, number: int, length: int) -> str:
        start = number * 7919 % max(1, len(self._pool) - length)
        return self._pool[start : start + length].strip() or "a"

    def _value(self, shape: Shape, name: str, number: int, room: int, owner: str = "") -> Any:
        for key in (f"{owner}.{name}", name):
            if key not in self.known:
                continue
            value = self.known[key]
            return value(number) if callable(value) else value
        if "$ref" in shape:
            model = shape["$ref"].rpartition("/")[2]
            return self._value(self.document["components"]["schemas"][model], name, number, room, model)
        for choice in ("anyOf", "oneOf", "allOf"):
            if choice in shape and "properties" not in shape:
                return self._value(max(shape[choice], key=self._rank), name, number, room, owner)
        if "const" in shape or "enum" in shape:
            return shape.get("const", [*shape.get("enum", ()), None][0])
        match shape.get("type"):
            case "array":
                assert "maxItems" in shape, f"the list {name!r} has no limit"
                count = min(shape["maxItems"], max(1, room))
                inner = shape.get("items", {})
                return [self._value(inner, f"{name}[]", index, room // count, owner) for index in range(count)]
            case "object" if "properties" in shape:
                return {
                    one: self._value(inner, one, number, room, shape.get("title", owner))
                    for one, inner in shape["properties"].items()
                }
            case "object":
                inner = shape.get("additionalProperties")
                inner = inner if isinstance(inner, dict) and inner else {"type": "string"}
                count = min(shape.get("maxProperties", 10), max(1, room))
                return {
                    f"K{index}": self._value(inner, f"{name}{{}}", index, room // count, owner)
                    for index in range(count)
                }
            case "string":
                return Text(min(shape.get("maxLength", self.size), self.most.get(name, self.size)))
            case "integer" | "number":
                return shape.get("minimum", 1)
            case "boolean":
                return shape.get("default", False)
            case _:
                return None

    def _rank(self, shape: Shape) -> int:
        """Which of several is the largest."""
        if "$ref" in shape:
            return 5
        return {"array": 6, "object": 4, "string": 3, "integer": 2, "boolean": 1}.get(shape.get("type", ""), 0)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _filled(value: Any, text: Callable[[Text], str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, text) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, text) for one in value]
    return text(value) if isinstance(value, Text) else value
