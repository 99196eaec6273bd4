"""Schemas from functions, and a model's arguments checked against them."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InvalidArguments, InvalidInput
from perdure.core.tool_schema import parse_arguments, schema_of
from perdure.testing.strategies import any_text, effort


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


def hidden(_city: str) -> str:
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
        (hidden, "_city"),
    ],
)
def test_a_function_that_can_be_no_tool_is_told_why(function: Callable[..., Any], message: str) -> None:
    """The error names the tool and what to change."""
    with pytest.raises(InvalidInput, match=message) as caught:
        schema_of(function)

    assert function.__name__ in str(caught.value)


# -- arguments ---------------------------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "weight": {"type": "number"},
        "exact": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        "where": {"type": "object"},
        "any": {},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"city": "Rome"}', {"city": "Rome"}),
        ('{"city": "Rome", "days": "3", "weight": "1.5"}', {"city": "Rome", "days": 3, "weight": 1.5}),
        ('{"city": "Rome", "days": 3.0, "weight": 2}', {"city": "Rome", "days": 3, "weight": 2}),
        (
            '{"city": "", "exact": false, "names": ["a", "b", "a"]}',
            {"city": "", "exact": False, "names": ["a", "b", "a"]},
        ),
        ('{"city": "x", "where": {"deep": [1]}, "any": null}', {"city": "x", "where": {"deep": [1]}, "any": None}),
        (' \n{"city": "\\ud800"}', {"city": "\ud800"}),
    ],
)
def test_arguments_that_fit_are_taken(text: str, arguments: dict[str, Any]) -> None:
    """As they are; numbers written as text are numbers where nothing is lost."""
    parsed = parse_arguments("look", SCHEMA, text)

    assert parsed == arguments
    assert {key: type(value) for key, value in parsed.items()} == {key: type(value) for key, value in arguments.items()}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "missing 'city'"),
        ("{}", "missing 'city'"),
        ("{", "not valid JSON"),
        ('{"city": "Rome"', "not valid JSON"),
        ("city=Rome", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "a JSON object was expected, not list"),
        ('"Rome"', "a JSON object was expected, not str"),
        ("null", "a JSON object was expected, not NoneType"),
        ('{"city": "Rome", "town": 1}', "unknown 'town'; known are city, days"),
        ('{"city": 1}', "'city' must be of type string, not 1"),
        ('{"city": null}', "'city' must be of type string, not None"),
        ('{"city": "x", "days": "three"}', "'days' must be of type integer"),
        ('{"city": "x", "days": "3.5"}', "'days' must be of type integer"),
        ('{"city": "x", "days": 3.5}', "'days' must be of type integer"),
        ('{"city": "x", "days": true}', "'days' must be of type integer"),
        ('{"city": "x", "days": Infinity}', "'days' must be of type integer"),
        ('{"city": "x", "weight": false}', "'weight' must be of type number"),
        ('{"city": "x", "exact": "true"}', "'exact' must be of type boolean"),
        ('{"city": "x", "exact": 1}', "'exact' must be of type boolean"),
        ('{"city": "x", "names": "a"}', "'names' must be of type array"),
        ('{"city": "x", "names": ["a", 1]}', r"'names\[1\]' must be of type string"),
        ('{"city": "x", "names": ["c"]}', r"'names\[0\]' must be one of"),
        ('{"city": "x", "where": []}', "'where' must be of type object"),
    ],
)
def test_arguments_that_do_not_fit_are_told(text: str, problem: str) -> None:
    """The model is told which and why, and that nothing was run; nothing is filled in."""
    with pytest.raises(InvalidArguments, match=problem) as caught:
        parse_arguments("look", SCHEMA, text)

    assert caught.value.tool == "look"
    assert str(caught.value).endswith("The tool was not run.")


def test_an_empty_text_is_no_arguments() -> None:
    """Some models write nothing for a tool that takes nothing."""
    assert parse_arguments("look", {"type": "object", "properties": {}, "additionalProperties": False}, " ") == {}


def test_an_open_schema_takes_what_it_does_not_know() -> None:
    """Only a closed schema refuses unknown arguments."""
    assert parse_arguments("look", {"type": "object"}, '{"a": 1}') == {"a": 1}


@effort(80, 3000)
@given(any_text() | st.recursive(st.none() | st.booleans() | st.floats() | any_text(5), st.lists).map(json.dumps))
def test_any_text_is_taken_or_refused(text: str) -> None:
    """Whatever a model writes: arguments that fit, or the one error that it is told."""
    try:
        arguments = parse_arguments("look", SCHEMA, text)
    except InvalidArguments:
        return
    assert isinstance(arguments["city"], str)
