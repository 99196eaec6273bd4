"""JSON schemas of Python functions of this program, and the docstrings of tools: Google, NumPy, Sphinx, Epydoc, plain.

`core.tools.source` reads schemas from source text. What others give as a schema is checked once, before it is stored.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn, get_type_hints
from urllib.parse import unquote

from perdure.core.errors import InvalidInput
from perdure.core.text.reprs import describe_value


def schema_of(function: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """Return (description, parameters) of a function: the schema from its signature, texts from its docstring. Raises:
    InvalidInput: no docstring, a parameter without annotation, `*args` or `**kwargs`."""
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
        notes = (note for note in getattr(annotation, "__metadata__", ()) if isinstance(note, str))
        if text := text or next(notes, None):  # None would override a `Field` in the annotation
            options["description"] = text
        if isinstance(default, FieldInfo):
            alias = pydantic.Field(alias=field)
            model_fields[f"p{index}"] = Annotated[annotation, pydantic.Field(**options), default, alias]
        else:
            model_fields[f"p{index}"] = (annotation, pydantic.Field(default, **options))
    model = pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **model_fields)
    schema: dict[str, Any] = without_titles(model.model_json_schema())
    return schema


def without_titles(schema: Any) -> Any:
    """Return a JSON schema without pydantic's generated titles, which only cost tokens, and without values that JSON
    does not have, such as a default of Infinity, which the function fills in itself."""
    if not isinstance(schema, dict):
        return schema
    own = {
        key: value
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and (key in (*MAPS, *LISTS, *PARTS) or is_json(value))
    }
    return with_parts(own, without_titles)


def is_json(value: Any) -> bool:
    """Return whether a value can be written as JSON, which has no NaN and no Infinity."""
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
                bare = re.search(r"[^\W\d]\w*", name)  # without what stands around it: `*rest`, `city (`
                parameters[bare[0] if bare else name.strip()] = parameter.description.strip()
    return Docs("\n\n".join(part.strip() for part in parts if part and part.strip()), parameters)


TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")

MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
PARTS = (
    *("additionalProperties", "not", "contains", "propertyNames", "if", "then", "else", "items"),
    *("additionalItems", "unevaluatedItems", "unevaluatedProperties"),
)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    """Return whether the value is a whole number from 0, which JSON may write as `2.0`."""
    return _is_number(value) and value >= 0 and value == value // 1


def _is_type(value: Any) -> bool:
    """Return whether the value is the name of a JSON type, or a list of such names."""
    kinds = value if isinstance(value, list | tuple) and value else [value]
    return all(isinstance(kind, str) and kind in TYPES for kind in kinds)


# Keyword -> what its value must be, and what to give instead.
_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_type, f"there are {', '.join(TYPES)}"),
    "enum": (lambda value: isinstance(value, list | tuple) and bool(value), "give a list of values"),
    "required": (
        lambda value: isinstance(value, list | tuple) and all(isinstance(name, str) for name in value),
        "give a list of names",
    ),
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), (_is_size, "give a whole number from 0")),
    **dict.fromkeys(("minProperties", "maxProperties"), (_is_size, "give a whole number from 0")),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), (_is_number, "give a number")),
    # Older drafts write a boolean beside `minimum`.
    **dict.fromkeys(
        ("exclusiveMinimum", "exclusiveMaximum"), (lambda value: isinstance(value, int | float), "give a number")
    ),
    **dict.fromkeys(("$ref", "format", "pattern"), (lambda value: isinstance(value, str), "give a text")),
}


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments in stored form: of type object if it allows that, and without null
    keywords, which is how Go writes an empty list. Raises: InvalidInput: nested too deep."""
    kinds = schema.get("type")
    try:
        plain: dict[str, Any] = _without_nulls(schema)
    except RecursionError:
        raise InvalidInput("the tool's schema is nested too deep") from None
    return plain | {"type": "object"} if isinstance(kinds, list) and "object" in kinds else plain


def _without_nulls(schema: Any) -> Any:
    """Return a schema and its parts without keywords that are null, except where null is a value."""
    if not isinstance(schema, Mapping):
        return schema
    own = {key: value for key, value in schema.items() if value is not None or key in ("const", "default")}
    return with_parts(own, _without_nulls)


def with_parts(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the schema with `change` applied to each schema right within it, not to deeper ones."""
    shape: dict[str, Any] = {}
    for key, value in schema.items():
        if key in MAPS and isinstance(value, Mapping):
            value = {name: change(part) for name, part in value.items()}
        elif key in LISTS and isinstance(value, list):
            value = [change(part) for part in value]
        elif key in PARTS:
            value = change(value)
        shape[key] = value
    return shape


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
    """Check the schema at the place `path` of the schema `root`, and its parts. Raises: InvalidInput."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        _refuse(path, f"is {describe_value(schema)}: give a schema, such as {{'type': 'string'}}")
    for key, value in schema.items():
        place = f"{path}.{key!s:.80}".removeprefix(".")
        if key in _VALUES and not _VALUES[key][0](value):
            _refuse(place, f"is {describe_value(value)}: {_VALUES[key][1]}")
        if key in MAPS:
            if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
                _refuse(place, f"is {describe_value(value)}: give an object of name and schema")
            for name, part in value.items():
                _check(part, f"{place}.{name:.80}", root)
        elif key in LISTS or (key == "items" and isinstance(value, list | tuple)):  # older drafts' `prefixItems`
            if not isinstance(value, list | tuple) or not value:
                _refuse(place, f"is {describe_value(value)}: give a list of schemas")
            for index, part in enumerate(value):
                _check(part, f"{place}[{index}]", root)
        elif key in PARTS:
            _check(value, place, root)
        elif key == "$ref":
            _check_reference(value, place, root)
        elif key == "discriminator" and isinstance(value, Mapping) and "mapping" in value:
            mapping = value["mapping"]
            if not isinstance(mapping, Mapping) or not all(isinstance(one, str) for one in mapping.values()):
                _refuse(place, f"maps {describe_value(mapping)}: give an object of name and reference")


def resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema to which the `$ref` of `schema` leads within `root`, with the keywords beside the `$ref`; one
    without `$ref` as it is. After 20 references, as in a circle, the last counts."""
    for _ in range(20):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return schema
        target = target_of(reference, root)
        beside = {key: keyword for key, keyword in schema.items() if key != "$ref"}
        schema = {**target, **beside} if isinstance(target, Mapping) else beside
    return schema


def target_of(reference: str, root: Mapping[str, Any]) -> Any:
    """Return what a reference such as `#/$defs/Place` leads to in `root`; None: nothing, or something elsewhere."""
    start, *names = unquote(reference).split("/")
    target: Any = root if start == "#" else None
    for name in names:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and name.isdecimal():
            target = target[int(name)] if int(name) < len(target) else None
        else:
            target = target.get(name) if isinstance(target, Mapping) else None
    return target


def _check_reference(reference: str, path: str, root: Mapping[str, Any]) -> None:
    """Check that a reference within the schema `root` leads to a schema, not back to itself. Others pass.

    `path`: the place of the reference, for error texts. Raises: InvalidInput.
    """
    visited: list[str] = []
    target: Any = {"$ref": reference}
    while isinstance(target, Mapping) and isinstance(reference_ := target.get("$ref"), str):
        if reference_.partition("/")[0] != "#":
            return
        if reference_ in visited:
            _refuse(path, f"is {describe_value(reference)}, which leads back to itself")
        visited.append(reference_)
        target = target_of(reference_, root)
    if not isinstance(target, Mapping | bool):
        _refuse(path, f"is {describe_value(reference)}, which leads nowhere: references are such as '#/$defs/Place'")


def _refuse(path: str, problem: str) -> NoReturn:
    """Refuse a schema; `problem` says what is wrong at `path`. Raises: InvalidInput, always."""
    raise InvalidInput(f"the tool's schema can't be used: {path or 'it'} {problem}")
