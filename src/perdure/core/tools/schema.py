"""Tool schemas: a JSON schema from a Python function of this program. `tool_source` makes one of source text."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

from perdure.core.errors import InvalidInput
from perdure.core.tools.schema_docs import read_docs

__all__ = ["schema_of", "without_titles"]


def schema_of(function: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """(description, parameters) of a function: the schema from its signature, texts from its docstring.

    Raises: InvalidInput: no docstring, a parameter without annotation, `*args` or `**kwargs`.
    """
    # Needed only where a program defines tools, and pydantic alone costs a tenth of a second to import.
    import pydantic
    from pydantic.fields import FieldInfo

    name = getattr(function, "__name__", repr(function))
    docs = read_docs(inspect.getdoc(function))
    if not docs.description:
        raise InvalidInput(f"tool {name!r} has no docstring: its first line tells the model what the tool is for")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidInput(f"tool {name!r}: an annotation can't be resolved: {error}") from error
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInput(f"tool {name!r}: parameter {parameter} can't be filled by a model: name each one")
        if parameter.name not in hints:
            raise InvalidInput(f"tool {name!r}: parameter {parameter.name!r} has no annotation, such as `city: str`")
        default = ... if parameter.default is parameter.empty else parameter.default
        hint = hints[parameter.name]
        text = docs.parameters.get(parameter.name) or _annotated_text(hint)
        # A text of None would put out what a `Field` among the annotations says.
        told: dict[str, Any] = {} if text is None else {"description": text}
        if isinstance(default, FieldInfo):
            fields[parameter.name] = (Annotated[hint, pydantic.Field(**told)] if told else hint, default)
        else:
            fields[parameter.name] = (hint, pydantic.Field(default, **told))
    try:
        model = pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise InvalidInput(f"tool {name!r}: no JSON schema can be made of its signature: {error.message}") from error
    return docs.description, without_titles(schema)


def _annotated_text(hint: Any) -> str | None:
    """What `Annotated[str, "The city."]` says."""
    return next((note for note in getattr(hint, "__metadata__", ()) if isinstance(note, str)), None)


def without_titles(schema: Any) -> Any:
    """A JSON schema without pydantic's generated titles, which cost tokens and say nothing."""
    if isinstance(schema, dict):
        return {
            key: {name: without_titles(inner) for name, inner in value.items()}
            if key in ("properties", "$defs") and isinstance(value, dict)
            else without_titles(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    return schema
