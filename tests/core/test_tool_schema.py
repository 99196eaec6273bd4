"""Schemas from functions, and a model's arguments checked against them."""

from __future__ import annotations

import enum
import inspect
import json
from collections.abc import Callable
from typing import Any, Literal

import pydantic
import pytest

from perdure.core.errors import InvalidInput
from perdure.core.tools.schema import parse_docs, schema_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(pydantic.BaseModel):
    """Where something is."""

    x: int
    title: str = ""


def no_arguments() -> str:
    """Do it."""
    return ""


def typical(city: str, days: int = 3, *, exact: bool = False) -> str:
    """Tell the weather.

    Works for any place.

    Args:
        city: The name of the city.
        days: How many days ahead.
    """
    return city


def typed(colour: Colour, size: Literal["s", "m"], names: list[str], point: Point, weight: float | None = None) -> str:
    """Paint."""
    return ""


def titled(title: str, properties: dict[str, int]) -> str:
    """A function whose parameters have the names of schema keywords."""
    return ""


async def waiting(seconds: float) -> None:
    """Wait."""


def test_a_schema_says_what_the_signature_says() -> None:
    """Types, defaults, what is required, what the docstring tells; nothing else is allowed."""
    assert schema_of(typical) == (
        "Tell the weather.\n\nWorks for any place.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The name of the city."},
                "days": {"type": "integer", "default": 3, "description": "How many days ahead."},
                "exact": {"type": "boolean", "default": False},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    )


def test_a_function_without_parameters_takes_nothing() -> None:
    """Its schema is an empty, closed object."""
    description, schema = schema_of(no_arguments)

    assert description == "Do it."
    assert (schema["type"], schema["properties"], schema["additionalProperties"]) == ("object", {}, False)
    assert schema.get("required", []) == []


def test_richer_types_are_described() -> None:
    """Enums, literals, lists, models and optional values; no generated title costs tokens."""
    _, schema = schema_of(typed)
    properties = schema["properties"]

    assert properties["colour"] == {"$ref": "#/$defs/Colour"}
    assert schema["$defs"]["Colour"] == {"enum": ["red", "blue"], "type": "string"}
    assert properties["size"] == {"enum": ["s", "m"], "type": "string"}
    assert properties["names"] == {"type": "array", "items": {"type": "string"}}
    assert schema["$defs"]["Point"]["properties"] == {
        "x": {"type": "integer"},
        "title": {"type": "string", "default": ""},
    }
    assert properties["weight"] == {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None}
    assert schema["required"] == ["colour", "size", "names", "point"]


def test_parameters_named_like_keywords_stay() -> None:
    """A parameter may be called `title` or `properties`."""
    _, schema = schema_of(titled)

    assert schema["properties"] == {
        "title": {"type": "string"},
        "properties": {"type": "object", "additionalProperties": {"type": "integer"}},
    }


def test_a_schema_is_plain_json() -> None:
    """It goes over a wire, and is the same each time."""
    for function in (no_arguments, typical, typed, titled, waiting):
        _, schema = schema_of(function)

        assert json.loads(json.dumps(schema)) == schema
        assert schema_of(function)[1] == schema


def undocumented(city: str) -> str:
    return city


def unannotated(city) -> str:  # type: ignore[no-untyped-def]
    """Tell."""
    return str(city)


def many(*cities: str) -> str:
    """Tell."""
    return ""


def keyed(**cities: str) -> str:
    """Tell."""
    return ""


def positional(city: str, /) -> str:
    """Tell."""
    return ""


def misspelt(city: Strng) -> str:  # type: ignore[name-defined]  # noqa: F821
    """Tell."""
    return ""


def foreign(city: object, call: Callable[[], None]) -> str:
    """Tell."""
    return ""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (undocumented, "no docstring"),
        (unannotated, "'city' has no annotation"),
        (many, "can't be filled by a model"),
        (keyed, "can't be filled by a model"),
        (positional, "can't be filled by a model"),
        (misspelt, "can't be resolved"),
        (foreign, "no JSON schema"),
    ],
)
def test_a_function_that_can_be_no_tool_is_told_why(function: Callable[..., Any], message: str) -> None:
    """The error names the tool and what to change."""
    with pytest.raises(InvalidInput, match=message) as caught:
        schema_of(function)

    assert function.__name__ in str(caught.value)


@pytest.mark.parametrize("first", ["@a ", "@return ", ":param a: ", "Args:\n    a: ", ""])
def test_a_docstring_with_an_endless_word_takes_no_time(first: str) -> None:
    """It is a description as it is: the parser's time grows with the square of the word."""
    text = first + "Z" * 200_000
    assert parse_docs(text).description == inspect.cleandoc(text)
