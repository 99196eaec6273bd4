"""Tool schemas: a JSON schema from a Python function, and a model's arguments checked against a schema."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from perdure.core.errors import InvalidArguments, InvalidInput

__all__ = ["parse_arguments", "schema_of"]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def schema_of(function: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """(description, parameters) of a function: the schema from its signature, texts from its docstring.

    Raises: InvalidInput: no docstring, a parameter without annotation, `*args` or `**kwargs`.
    """
    # Both are needed only where a program defines tools, and pydantic alone costs a tenth of a second to import.
    import docstring_parser
    import pydantic

    name = getattr(function, "__name__", repr(function))
    documentation = docstring_parser.parse(inspect.getdoc(function) or "")
    description = "\n\n".join(filter(None, [documentation.short_description, documentation.long_description]))
    if not description:
        raise InvalidInput(f"tool {name!r} has no docstring: its first line tells the model what the tool is for")
    texts = {parameter.arg_name: parameter.description for parameter in documentation.params}
    try:
        hints = inspect.get_annotations(function, eval_str=True)
    except NameError as error:
        raise InvalidInput(f"tool {name!r}: an annotation can't be resolved: {error}") from error
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInput(f"tool {name!r}: parameter {parameter} can't be filled by a model: name each one")
        if parameter.name not in hints:
            raise InvalidInput(f"tool {name!r}: parameter {parameter.name!r} has no annotation, such as `city: str`")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], pydantic.Field(default, description=texts.get(parameter.name)))
    try:
        model = pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise InvalidInput(f"tool {name!r}: no JSON schema can be made of its signature: {error.message}") from error
    return description, _without_titles(schema)


def parse_arguments(tool: str, schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The arguments that a model wrote as JSON, checked against the schema; an empty text is no arguments.

    Numbers written as text are taken as numbers where that loses nothing. Only the keywords that our own schemas use
    are looked at: type, properties, required, additionalProperties, items, enum.

    Raises: InvalidArguments: not JSON, no object, missing, unknown or of the wrong type; nothing is filled in.
    """
    try:
        arguments = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(tool, f"not valid JSON ({error})") from error
    if not isinstance(arguments, dict):
        raise InvalidArguments(tool, f"a JSON object was expected, not {type(arguments).__name__}")
    known: Mapping[str, Any] = schema.get("properties", {})
    if schema.get("additionalProperties") is False and (unknown := [key for key in arguments if key not in known]):
        raise InvalidArguments(tool, f"unknown {', '.join(map(repr, unknown))}; known are {', '.join(known) or 'none'}")
    if missing := [key for key in schema.get("required", ()) if key not in arguments]:
        raise InvalidArguments(tool, f"missing {', '.join(map(repr, missing))}")
    for key, value in arguments.items():
        if key in known:
            arguments[key] = _checked(tool, key, value, known[key])
    return arguments


def _checked(tool: str, key: str, value: Any, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    if kind in ("integer", "number") and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = int(value) if kind == "integer" else float(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if (
        isinstance(kind, str)
        and kind in _TYPES
        and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "number")))
    ):
        raise InvalidArguments(tool, f"{key!r} must be of type {kind}, not {value!r:.80}")
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidArguments(tool, f"{key!r} must be one of {schema['enum']}, not {value!r:.80}")
    if kind == "array" and "items" in schema:
        return [_checked(tool, f"{key}[{index}]", item, schema["items"]) for index, item in enumerate(value)]
    return value


def _without_titles(schema: Any) -> Any:
    """The schema without pydantic's generated titles, which cost tokens and say nothing."""
    if isinstance(schema, dict):
        return {
            key: {name: _without_titles(inner) for name, inner in value.items()}
            if key in ("properties", "$defs") and isinstance(value, dict)
            else _without_titles(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    return schema
