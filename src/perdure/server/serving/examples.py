"""Examples in the OpenAPI document: written ones of bodies of requests, and values made from the shapes of answers.

The tests send every example of a body to a server, and hold all examples against their schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.core.ids import ID_PATTERNS, PREFIXES
from perdure.core.text.tables import read_table

Shape = dict[str, Any]

_UUID = "123e4567-e89b-42d3-a456-426614174000"
_IDS = {ID_PATTERNS[kind]: f"{prefix}-{_UUID}" for kind, prefix in PREFIXES.items()}
"""Pattern of an id -> an id."""

_DATA = read_table(__file__, "examples.toml")
BODIES: Mapping[str, Any] = _DATA["bodies"]
"""Name of a body's schema -> an example."""

_TIME = "2026-11-20T22:07:44Z"
_DEPTH = 5


_STREAMS: Mapping[str, Sequence[str]] = _DATA["streams"]
"""Word of a path -> the data of the events of its stream, if they are no chunks."""


def add_examples(document: Shape) -> None:
    """Add an example to each body of JSON, and to each answer with content."""
    schemas = document["components"]["schemas"]
    for path, media_type, content, is_request in _contents(document):
        shape = content.get("schema", {})
        (shape, *_) = shape.get("anyOf", [shape]) if is_request else [shape]  # a body that may be missing
        name = shape.get("$ref", "").rpartition("/")[2]
        if media_type == "text/event-stream":
            content["example"] = [{"data": data} for data in _stream(path, schemas)]
        elif media_type == "application/json":
            content["example"] = BODIES[name] if is_request and name in BODIES else _example(shape, schemas)


def _stream(path: str, schemas: Shape) -> Iterator[str]:
    """The data of a stream's events; a resumed one begins behind the chunk that the example of its body names."""
    *_, end = words = path.split("/")
    for word in words:
        if word in _STREAMS:
            yield from _STREAMS[word]
            return
    is_resumed = end == "stream" and not path.endswith("/messages/stream")
    seq = BODIES["ResumeRequest"]["starting_after"] + 1 if is_resumed else None
    for kind in ("AssistantMessage", "Stop", "RequestUsage"):
        chunk = _example({"$ref": f"#/components/schemas/{kind}"}, schemas)
        yield json.dumps(chunk | {"id": f"message-{_UUID}", "seq_id": seq} if "seq_id" in chunk else chunk)
    yield "[DONE]"


def _contents(document: Shape) -> Iterator[tuple[str, str, Shape, bool]]:
    """Path and media type of each body and successful answer, its content, and whether it is a body."""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            bodies = operation.get("requestBody", {}).get("content", {})
            answers = operation["responses"].get("200", {}).get("content", {})
            yield from ((path, media_type, content, True) for media_type, content in bodies.items())
            yield from ((path, media_type, content, False) for media_type, content in answers.items())


def _example(shape: Shape, schemas: Shape, field: str = "", depth: int = 0) -> Any:
    """An example of a JSON schema, of objects the required fields; `field` is its name, `depth` how deep it stands."""
    if "$ref" in shape:
        shape = schemas[shape["$ref"].rpartition("/")[2]]
    for options in ("anyOf", "oneOf"):
        if options in shape:
            kinds = [kind for kind in shape[options] if kind.get("type") != "null"]
            is_nullable = len(kinds) < len(shape[options])
            return None if is_nullable and depth > 1 else _example(kinds[0], schemas, field, depth)
    if "const" in shape or "enum" in shape:
        return shape.get("const", shape.get("enum", [None])[0])
    match shape.get("type"):
        case "string":
            return _text(shape, field)
        case "integer" | "number":
            return max(1, shape.get("minimum", 1))
        case "boolean":
            return False
        case "array":
            return [] if depth >= _DEPTH else [_example(shape["items"], schemas, field, depth + 1)]
        case "object":
            required, fields = shape.get("required", ()), shape.get("properties", {})
            return {name: _example(fields[name], schemas, name, depth + 1) for name in required}
        case _:
            return None


def _text(shape: Shape, field: str) -> str:
    if shape.get("pattern") in _IDS:
        return _IDS[shape["pattern"]]
    if shape.get("format") == "date-time":
        return _TIME
    return str(_DATA["fields"].get(field, field or "text"))
