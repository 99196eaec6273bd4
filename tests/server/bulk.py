"""Requests up to a size that are as costly as OpenAPI lets them be: many items, fields and digits, deep and long."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

DEPTH = 90
LARGEST = ("null", "boolean", "integer", "number", "string", "object", "array")
WRONG: Mapping[str, Any] = {"string": 0, "integer": "x", "number": "x", "boolean": "x", "array": 0, "object": 0}


def _text(unit: str, size: int) -> str:
    return unit * max(1, size // len(json.dumps(unit)))


KINDS: Mapping[str, Callable[[int], Any]] = {
    "numbers": lambda size: [0] * (size // 3),
    "floats": lambda size: [1e300] * (size // 7),
    "texts": lambda size: [""] * (size // 4),
    "objects": lambda size: [{}] * min(size // 4, 190_000),
    "lists": lambda size: [[""]] * min(size // 6, 90_000),
    "fields": lambda size: {f"f{number}": 0 for number in range(size // 14)},
    "deep": lambda size: [json.loads("[" * DEPTH + "]" * DEPTH)] * min(size // 190, 2_000),
    "long": lambda size: _text("a", size),
    "escaped": lambda size: _text('\n"\\\x01', size),
    "brackets": lambda size: _text("{<[(", size),
    "lines": lambda size: _text("- a: <b>\n", size),
    "digits": lambda size: [int("9" * 4_000)] * (size // 4_002),
    "one number": lambda size: int("9" * 4_200),
}
"""What may stand in any field: name -> a value of about that many bytes of JSON."""


class Schemas:
    """The schemas of one OpenAPI document, and values that they describe."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._named: Mapping[str, Schema] = document.get("components", {}).get("schemas", {})

    def of(self, schema: Schema) -> Schema:
        """The schema itself, behind names; of alternatives the one that may be largest."""
        if "$ref" in schema:
            return self.of(self._named[schema["$ref"].rpartition("/")[2]])
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                found = [self.of(one) for one in schema[key]]
                return max(found, key=lambda one: LARGEST.index(one.get("type", "null")))
        if isinstance(kinds := schema.get("type"), list):
            return {**schema, "type": max(kinds, key=LARGEST.index)}
        return schema

    def small(self, schema: Schema, known: Mapping[str, Any], name: str = "") -> Any:
        """A value that the schema takes, as far as it says; `known` has real ones by a field's name."""
        if name in known:
            return known[name]
        schema = self.of(schema)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else schema["enum"][0]
        match schema.get("type"):
            case "object":
                return self._required(schema, known)
            case "array":
                return [self.small(schema.get("items", {}), known)] * schema.get("minItems", 0)
            case "integer" | "number":
                return schema.get("minimum", 1)
            case "boolean":
                return False
            case _ if schema.get("format") == "date-time":
                return "2026-11-20T15:30:00Z"
            case _:
                return "x" * max(1, schema.get("minLength", 1))

    def large(self, schema: Schema, size: int, known: Mapping[str, Any], *, wrong: bool = False) -> Any:
        """A value of the right shape with about `size` bytes; `wrong`: with something wrong in each of its items."""
        schema = self.of(schema)
        match schema.get("type"):
            case "array":
                items = self.of(schema.get("items", {}))
                one = self._spoilt(items, known) if wrong else self.small(items, known)
                inner = (
                    self.large(items, size // 4, known, wrong=wrong)
                    if items.get("type") in ("object", "array")
                    else one
                )
                return [inner] + [one] * (size // 2 // (len(json.dumps(one)) + 2))
            case "object" if schema.get("properties"):
                fields = schema["properties"]
                share = size // len(fields)
                return self._required(schema, known) | {
                    name: self.large(one, share, known, wrong=wrong)
                    for name, one in fields.items()
                    if name not in known
                }
            case "object":
                extra = schema.get("additionalProperties")
                one = self.small(extra, known) if isinstance(extra, dict) else "x"
                one = 0 if wrong else one
                return {f"f{number}": one for number in range(size // 20)}
            case "string" | None if not {"enum", "const", "format"} & schema.keys():
                return 0 if wrong else _text("a b. ", size)
            case _:
                return self.small(schema, known)

    def fields(self, schema: Schema) -> Mapping[str, Schema]:
        properties: Mapping[str, Schema] = self.of(schema).get("properties", {})
        return properties

    def _required(self, schema: Schema, known: Mapping[str, Any]) -> dict[str, Any]:
        fields = schema.get("properties", {})
        return {name: self.small(fields.get(name, {}), known, name) for name in schema.get("required", ())}

    def _spoilt(self, schema: Schema, known: Mapping[str, Any]) -> Any:
        if schema.get("type") == "object" and schema.get("properties"):
            return {name: WRONG.get(self.of(one).get("type", ""), 0) for name, one in schema["properties"].items()}
        return WRONG.get(schema.get("type", ""), 0)


def operations(document: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """(method, path, operation) of everything a document lists, what deletes last."""
    found = [(verb.upper(), path, one) for path, verbs in document["paths"].items() for verb, one in verbs.items()]
    return sorted(found, key=lambda operation: operation[0] == "DELETE")


def queries(operation: Mapping[str, Any], size: int) -> Iterator[tuple[str, str]]:
    """(what it is, query) with long values in all parameters of an operation at once."""
    names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    if not names:
        return
    for kind, text in (("letters", "a"), ("digits", "9"), ("signs", "%22%5C"), ("commas", ","), ("dates", "2026-")):
        value = text * (size // len(names) // len(text))
        yield f"{kind} in the query", "&".join(f"{name}={value}" for name in names)
    yield "many parameters", "&".join(f"{names[0]}=a" for _ in range(size // (len(names[0]) + 3)))


def bodies(
    schemas: Schemas, operation: Mapping[str, Any], size: int, known: Mapping[str, Any], *, of_one: int = 0
) -> Iterator[tuple[str, bytes]]:
    """(what it is, body) for an operation, also for one that needs none.

    Args:
        size: about how many bytes each has.
        of_one: also bodies with so many bytes in one field after the other, and with `size` bytes at the top.
    """
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    fields = schemas.fields(schema)
    small = schemas.small(schema, known)
    base = small if isinstance(small, dict) else {}
    for wrong in (False, True) if fields else ():
        kind = "wrong" if wrong else "right"
        yield f"{kind} everywhere", json_of(schemas.large(schema, size, known, wrong=wrong))
        for name, one in fields.items() if of_one else ():
            yield f"{kind} {name}", json_of(base | {name: schemas.large(one, of_one, known, wrong=wrong)})
    for kind, make in KINDS.items():
        if of_one or (not fields and kind in ("objects", "deep")):
            yield f"{kind} alone", json_of(make(size))
        if fields:
            value = make(size // len(fields))
            yield f"{kind} everywhere", json_of(base | {name: value for name in fields if name not in known})
        value = make(of_one) if of_one else None
        for name in fields if of_one else ():
            yield f"{kind} {name}", json_of(base | {name: value})


def json_of(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
