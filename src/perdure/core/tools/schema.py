"""JSON schemas of Python functions of this program, and the docstrings of tools: Google, NumPy, Sphinx, Epydoc, plain.

`core.tools.source` reads schemas from source text.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from perdure.core.errors import InvalidInput


def schema_of(function: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """Return (description, parameters) of a function: the schema from its signature, texts from its docstring.

    Raises: InvalidInput: no docstring, a parameter without annotation, `*args` or `**kwargs`.
    """
    # Needed only where a program defines tools, and pydantic alone costs a tenth of a second to import.
    import pydantic

    name = getattr(function, "__name__", repr(function))
    docs = parse_docs(inspect.getdoc(function))
    if not docs.description:
        raise InvalidInput(f"tool {name!r} has no docstring: its first line tells the model what the tool is for")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidInput(f"tool {name!r}: an annotation can't be resolved: {error}") from error
    fields: dict[str, tuple[Any, Any, str | None]] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInput(f"tool {name!r}: parameter {parameter} can't be filled by a model: name each one")
        if parameter.name not in hints:
            raise InvalidInput(f"tool {name!r}: parameter {parameter.name!r} has no annotation, such as `city: str`")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default, docs.parameters.get(parameter.name))
    try:
        return docs.description, parameters_schema(name, fields)
    except pydantic.errors.PydanticUserError as error:
        raise InvalidInput(f"tool {name!r}: no JSON schema can be made of its signature: {error.message}") from error


def parameters_schema(name: str, fields: Mapping[str, tuple[Any, Any, str | None]]) -> dict[str, Any]:
    """Build the JSON schema of a function's parameters; it refuses other names.

    Args:
        fields: name -> (annotation, default, description). The default is `...` for none, a value, or a pydantic
            `Field`.
    Raises: any error of pydantic's for an annotation.
    """
    import pydantic
    from pydantic.fields import FieldInfo

    model_fields: dict[str, Any] = {}
    for index, (field, (annotation, default, text)) in enumerate(fields.items()):
        # By an alias, since a parameter may have a name that fields of a model can't have, such as `_city` or `copy`.
        options: dict[str, Any] = {"alias": field}
        if text := text or _annotation_text(annotation):  # None would override a `Field` in the annotation
            options["description"] = text
        if isinstance(default, FieldInfo):
            alias = pydantic.Field(alias=field)
            model_fields[f"p{index}"] = Annotated[annotation, pydantic.Field(**options), default, alias]
        else:
            model_fields[f"p{index}"] = (annotation, pydantic.Field(default, **options))
    model = pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **model_fields)
    schema: dict[str, Any] = without_titles(model.model_json_schema())
    return schema


def _annotation_text(hint: Any) -> str | None:
    """Return the text of `Annotated[str, "The city."]`."""
    return next((note for note in getattr(hint, "__metadata__", ()) if isinstance(note, str)), None)


_OF_SCHEMAS = frozenset(
    {"properties", "$defs", "items", "prefixItems", "additionalProperties", "anyOf", "allOf", "oneOf"}
)


def without_titles(schema: Any) -> Any:
    """Remove pydantic's generated titles from a JSON schema: they only cost tokens; and values that JSON does not have,
    such as a default of Infinity, which the function fills in itself."""
    if isinstance(schema, dict):
        return {
            key: {name: without_titles(inner) for name, inner in value.items()}
            if key in ("properties", "$defs") and isinstance(value, dict)
            else without_titles(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str)) and (key in _OF_SCHEMAS or is_json(value))
        }
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    return schema


def is_json(value: Any) -> bool:
    """Whether a value can be written as JSON, which has no NaN and no Infinity."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


_SECTION = re.compile(r"(args|arguments|parameters|params|returns?|raises|yields|examples?)\s*:?\s*$|[:@]\w+", re.I)
"""A first line of a docstring that does not describe the tool itself."""

_LONG_WORD = re.compile(r"\S{500}")

_STAND_IN = "-\n\n"


@dataclass(frozen=True, slots=True)
class Docs:
    """A tool's description, with the long text and examples of its docstring; and parameter -> text."""

    description: str
    parameters: dict[str, str]


def parse_docs(docstring: str | None) -> Docs:
    """Parse a docstring for a model, without the sections on results and errors. Never raises."""
    # Needed only where a tool is defined.
    import docstring_parser

    text = inspect.cleandoc(docstring or "")
    if _LONG_WORD.search(text):  # the parser's time grows with the square of a word's length
        return Docs(text, {})
    first = text.split("\n", 1)[0]
    nameless = bool(_SECTION.match(first.strip()))
    try:
        parsed = docstring_parser.parse(_STAND_IN + text if nameless else text)
    except docstring_parser.ParseError:
        return Docs(text, {})
    parts = [] if nameless else [parsed.short_description, parsed.long_description]
    for example in parsed.examples:
        example_text = "\n".join(filter(None, (example.snippet, example.description)))
        parts.append(f"Examples:\n{example_text}" if example_text else None)
    parameters: dict[str, str] = {}
    for parameter in parsed.params:
        if parameter.description:
            for name in parameter.arg_name.split(","):  # NumPy: several of one description
                parameters[_plain(name)] = parameter.description.strip()
    return Docs("\n\n".join(part.strip() for part in parts if part and part.strip()), parameters)


def _plain(name: str) -> str:
    """Return a parameter's name without the characters around it: `*rest`, `city (`."""
    match = re.search(r"[^\W\d]\w*", name)
    return match[0] if match else name.strip()
