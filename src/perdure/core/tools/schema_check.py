"""Check the JSON schema of a tool's arguments once, before it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from perdure.core.errors import InvalidInput
from perdure.core.text.reprs import describe_value
from perdure.core.tools.schema import is_json

TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_PARTS = ("additionalProperties", "not", "contains", "propertyNames", "if", "then", "else", "items")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == value // 1


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _is_type(value: Any) -> bool:
    kinds = value if isinstance(value, list | tuple) and value else [value]
    return all(isinstance(kind, str) and kind in TYPES for kind in kinds)


# Keyword -> what its value must be, and what to give instead.
_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_type, f"there are {', '.join(TYPES)}"),
    "enum": (lambda value: isinstance(value, list | tuple) and bool(value), "give a list of values"),
    "required": (_is_list_of_names, "give a list of names"),
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), (_is_size, "give a whole number from 0")),
    **dict.fromkeys(("minProperties", "maxProperties"), (_is_size, "give a whole number from 0")),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), (_is_number, "give a number")),
    # Older drafts write a boolean beside `minimum`.
    **dict.fromkeys(
        ("exclusiveMinimum", "exclusiveMaximum"), (lambda value: isinstance(value, int | float), "give a number")
    ),
    **dict.fromkeys(("$ref", "format", "pattern"), (lambda value: isinstance(value, str), "give a text")),
}


def check_schema(schema: Any) -> None:
    """Check that a tool's schema is of an object, its parts are schemas and its references resolve.

    Unknown keywords are not checked.

    Raises: InvalidInput: naming the place, such as `properties.city.anyOf`.
    """
    if not isinstance(schema, Mapping):
        _refuse("", f"is {describe_value(schema)}: give an object, such as {{'type': 'object', 'properties': {{}}}}")
    if "type" in schema and schema["type"] != "object":
        _refuse("type", f"is {describe_value(schema['type'])}: a tool's arguments are of type 'object'")
    try:
        _check(schema, "", schema)
        if not is_json(schema):
            _refuse("", "holds a value that JSON does not have, such as NaN or Infinity: leave it out")
    except RecursionError:
        raise InvalidInput("the tool's schema is nested too deep") from None


def _check(schema: Any, path: str, root: Mapping[str, Any]) -> None:
    """Check a schema at a place of the root schema, and its parts. Raises: InvalidInput."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        _refuse(path, f"is {describe_value(schema)}: give a schema, such as {{'type': 'string'}}")
    for key, value in schema.items():
        place = f"{path}.{key!s:.80}".removeprefix(".")
        if key in _VALUES and not _VALUES[key][0](value):
            _refuse(place, f"is {describe_value(value)}: {_VALUES[key][1]}")
        if key in _MAPS:
            if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
                _refuse(place, f"is {describe_value(value)}: give an object of name and schema")
            for name, part in value.items():
                _check(part, f"{place}.{name:.80}", root)
        elif key in _LISTS or (key == "items" and isinstance(value, list | tuple)):  # older drafts' `prefixItems`
            if not isinstance(value, list | tuple) or not value:
                _refuse(place, f"is {describe_value(value)}: give a list of schemas")
            for index, part in enumerate(value):
                _check(part, f"{place}[{index}]", root)
        elif key in _PARTS:
            _check(value, place, root)
        elif key == "$ref":
            _check_reference(value, place, root)
        elif key == "discriminator" and isinstance(value, Mapping) and "mapping" in value:
            mapping = value["mapping"]
            if not isinstance(mapping, Mapping) or not all(isinstance(one, str) for one in mapping.values()):
                _refuse(place, f"maps {describe_value(mapping)}: give an object of name and reference")


def _check_reference(reference: str, path: str, root: Mapping[str, Any]) -> None:
    """Check that a reference within the schema leads to a schema, not back to itself. Other references pass."""
    visited: list[str] = []
    target: Any = {"$ref": reference}
    while isinstance(target, Mapping) and isinstance(reference_ := target.get("$ref"), str):
        if not reference_.startswith("#"):
            return
        if reference_ in visited:
            _refuse(path, f"is {describe_value(reference)}, which leads back to itself")
        visited.append(reference_)
        target = root
        for name in reference_.split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) else None
    if not isinstance(target, Mapping | bool):
        _refuse(path, f"is {describe_value(reference)}, which leads nowhere: references are such as '#/$defs/Place'")


def _refuse(path: str, problem: str) -> NoReturn:
    """Raise the error of a schema that can't be used."""
    raise InvalidInput(f"the tool's schema can't be used: {path or 'it'} {problem}")
