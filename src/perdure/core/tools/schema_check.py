"""Whether a JSON schema of a tool's arguments can be read at all: looked at once, when it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from perdure.core.errors import InvalidInput

__all__ = ["check_schema"]

TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_PARTS = ("additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_SIZES = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_NUMBERS = ("minimum", "maximum", "multipleOf")
_LIMITS = ("exclusiveMinimum", "exclusiveMaximum")
_TEXTS = ("$ref", "format", "pattern")


def check_schema(schema: Any) -> None:
    """Nothing, when arguments can be read by this schema of a tool: it is of an object, its parts are schemas, its
    references lead somewhere. What it says beyond what is known here is not looked at.

    Raises: InvalidInput: naming the place, such as `properties.city.anyOf`.
    """
    if not isinstance(schema, Mapping):
        _refuse("", f"is {_shown(schema)}: give an object, such as {{'type': 'object', 'properties': {{}}}}")
    if "type" in schema and schema["type"] != "object":
        _refuse("type", f"is {_shown(schema['type'])}: a tool's arguments are of type 'object'")
    try:
        _check(schema, "", schema)
    except RecursionError:
        raise InvalidInput("the tool's schema is nested too deep") from None


def _check(schema: Any, path: str, root: Mapping[str, Any]) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        _refuse(path, f"is {_shown(schema)}: give a schema, such as {{'type': 'string'}}")
    if "type" in schema:
        _check_type(schema["type"], _at(path, "type"))
    if "enum" in schema and (not isinstance(schema["enum"], list | tuple) or not schema["enum"]):
        _refuse(_at(path, "enum"), f"is {_shown(schema['enum'])}: give a list of values")
    required = schema.get("required", [])
    if not isinstance(required, list | tuple) or not all(isinstance(name, str) for name in required):
        _refuse(_at(path, "required"), f"is {_shown(required)}: give a list of names")
    _check_values(schema, path)
    if "$ref" in schema:
        _check_reference(schema, _at(path, "$ref"), root)
    for key in _MAPS:
        if key in schema:
            parts = schema[key]
            if not isinstance(parts, Mapping) or not all(isinstance(name, str) for name in parts):
                _refuse(_at(path, key), f"is {_shown(parts)}: give an object of name and schema")
            for name, part in parts.items():
                _check(part, _at(_at(path, key), name), root)
    for key in _LISTS:
        if key in schema:
            _check_list(schema[key], _at(path, key), root)
    for key in _PARTS:
        if key in schema:
            _check(schema[key], _at(path, key), root)
    if "items" in schema:
        if isinstance(schema["items"], list | tuple):  # as older drafts write `prefixItems`
            _check_list(schema["items"], _at(path, "items"), root)
        else:
            _check(schema["items"], _at(path, "items"), root)


def _check_type(kind: Any, path: str) -> None:
    kinds = kind if isinstance(kind, list | tuple) and kind else [kind]
    for one in kinds:
        if one not in TYPES:
            _refuse(path, f"is {_shown(kind)}: there are {', '.join(TYPES)}")


def _check_list(parts: Any, path: str, root: Mapping[str, Any]) -> None:
    if not isinstance(parts, list | tuple) or not parts:
        _refuse(path, f"is {_shown(parts)}: give a list of schemas")
    for index, part in enumerate(parts):
        _check(part, f"{path}[{index}]", root)


def _check_values(schema: Mapping[str, Any], path: str) -> None:
    for key in _SIZES:
        value = schema.get(key, 0)
        if not isinstance(value, int | float) or isinstance(value, bool) or value < 0 or value != value // 1:
            _refuse(_at(path, key), f"is {_shown(value)}: give a whole number from 0")
    for key in (*_NUMBERS, *_LIMITS):
        value = schema.get(key, 0)
        # Older drafts write a boolean beside `minimum` for the exclusive limits.
        if not isinstance(value, int | float) or (isinstance(value, bool) and key not in _LIMITS):
            _refuse(_at(path, key), f"is {_shown(value)}: give a number")
    for key in _TEXTS:
        if not isinstance(schema.get(key, ""), str):
            _refuse(_at(path, key), f"is {_shown(schema[key])}: give a text")
    told = schema.get("discriminator")
    if isinstance(told, Mapping) and "mapping" in told:
        mapping = told["mapping"]
        if not isinstance(mapping, Mapping) or not all(isinstance(one, str) for one in mapping.values()):
            _refuse(_at(path, "discriminator"), f"maps {_shown(mapping)}: give an object of name and reference")


def _check_reference(schema: Mapping[str, Any], path: str, root: Mapping[str, Any]) -> None:
    """A reference within the schema has to lead to a schema, not back to itself. Others are not followed here."""
    seen: list[str] = []
    found: Any = schema
    while isinstance(found, Mapping) and isinstance(reference := found.get("$ref"), str):
        if not reference.startswith("#"):
            return
        if reference in seen:
            _refuse(path, f"is {_shown(schema['$ref'])}, which leads back to itself")
        seen.append(reference)
        found = root
        for name in reference.split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping | bool):
            _refuse(path, f"is {_shown(schema['$ref'])}, which leads nowhere: references are such as '#/$defs/Place'")


def _at(path: str, name: str) -> str:
    return f"{path}.{name[:80]}" if path else name[:80]


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


def _refuse(path: str, problem: str) -> NoReturn:
    raise InvalidInput(f"the tool's schema can't be used: {path or 'it'} {problem}")
