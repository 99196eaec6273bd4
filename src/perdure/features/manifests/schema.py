"""The JSON schema of files of agents, and the check of what a file says by it, with the line of each error."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.domain.agents.units import KNOWN_SETTINGS
from perdure.features.manifests.yaml_nodes import Node

_TYPES: Mapping[str, tuple[Any, str]] = {
    "object": (dict, "fields `name: value`"),
    "array": (list, "a list"),
    "string": (str, "a text: quote it"),
    "boolean": (bool, "true or false"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
}


@functools.cache
def manifest_schema() -> Mapping[str, Any]:
    """The JSON schema of a file of agents."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_text("utf-8"))
    settings = schema["$defs"]["agents"]["additionalProperties"]["properties"]["settings"]
    settings |= {"properties": {name: {} for name in sorted(KNOWN_SETTINGS)}, "additionalProperties": False}
    return schema


def check_document(node: Node) -> None:
    """Check a document by the schema. Raises: InvalidInput, with file and line."""
    _check(node, manifest_schema(), "the file")


def _check(node: Node, schema: Mapping[str, Any], what: str) -> None:
    """Check a value by a part of the schema; `what` names it in errors. Raises: InvalidInput."""
    if reference := schema.get("$ref"):
        return _check(node, manifest_schema()["$defs"][reference.removeprefix("#/$defs/")], what)
    value = node.value
    if (allowed := schema.get("enum")) and not any(value == one and type(value) is type(one) for one in allowed):
        raise _error(node, f"{what} is {_shown(value)}: give {', '.join(json.dumps(one) for one in allowed)}")
    if (kind := schema.get("type")) is not None:
        types, needed = _TYPES[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "boolean"):
            raise _error(node, f"{what} is {_shown(value)}: give {needed}")
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            raise _error(node, f"{what} has {len(value):,} characters: 1 to {schema.get('maxLength', 0):,} are allowed")
        if (pattern := schema.get("pattern")) and not re.search(pattern, value):
            raise _error(node, f"{what} is {value!r:.80}: it has another form. {schema.get('description', pattern)}")
    elif isinstance(value, int | float) and value < schema.get("minimum", value):
        raise _error(node, f"{what} is {value}: at least {schema['minimum']}")
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            raise _error(node, f"{what} has {len(value):,} items, the limit is {schema['maxItems']:,}")
        for one in value:
            _check(one, schema.get("items", {}), f"an item of {what}")
    elif isinstance(value, dict):
        _check_fields(node, schema, what)
    return None


def _check_fields(node: Node, schema: Mapping[str, Any], what: str) -> None:
    """Check the fields of an object by a part of the schema. Raises: InvalidInput."""
    known, more = schema.get("properties", {}), schema.get("additionalProperties", {})
    if len(node.value) > schema.get("maxProperties", len(node.value)):
        raise _error(node, f"{what} has {len(node.value):,} fields, the limit is {schema['maxProperties']:,}")
    for name in schema.get("required", ()):
        if name not in node.value:
            raise _error(node, f"{what} has no {name!r}: it is needed")
    for name, one in node.value.items():
        if name not in known and more is False:
            near = difflib.get_close_matches(name, known, 1)
            helps = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise InvalidInput(f"{node.keys[name]}: {what} has no field {name!r:.80}: {helps}")
        if not name.strip() or len(name) > 200 or not name.isprintable():
            raise InvalidInput(f"{node.keys[name]}: the name {name!r:.80} can't be used: 1 to 200 printable characters")
        _check(one, known.get(name, more), repr(name))


def _shown(value: Any) -> str:
    """A value in an error."""
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else f"{value!r:.80}"


def _error(node: Node, problem: str) -> InvalidInput:
    """The error about a value, with its place."""
    return InvalidInput(f"{node.place}: {problem}")
