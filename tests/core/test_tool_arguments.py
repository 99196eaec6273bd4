"""What models send as arguments, fitted to schemas: a table of what is taken, a table of what is refused, and laws."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InvalidArguments
from perdure.core.tools.arguments import fit_arguments, parse_arguments
from tests.support.cases import for_each
from tests.support.strategies import any_text, effort

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


@for_each(
    [
        ("", "missing 'city'"),
        ("{}", "missing 'city'"),
        ("{", "not valid JSON"),
        ('{"city": "Rome"', "not valid JSON"),
        ("city=Rome", "not valid JSON"),
        ("[" * 100_000, "nested too deep"),
        ('{"city": ["x"' + ',{"":[]}' * 1_000_000 + "]}", "more than 20,000 arrays and objects"),
        ("[]", r"a JSON object was expected, not \[\]"),
        ('"Rome"', "a JSON object was expected, not 'Rome'"),
        ("null", "a JSON object was expected, not null"),
        ('{"city": "Rome", "town": 1}', "unknown 'town'; known are city, days"),
        ('{"city": 1.5}', "'city' must be of type string, not 1.5"),
        ('{"city": null}', "'city' must be of type string, not null"),
        ('{"city": "x", "days": "three"}', "'days' must be of type integer"),
        ('{"city": "x", "days": "3.5"}', "'days' must be of type integer"),
        ('{"city": "x", "days": 3.5}', "'days' must be of type integer"),
        ('{"city": "x", "days": true}', "'days' must be of type integer"),
        ('{"city": "x", "days": Infinity}', "Infinity is not JSON"),
        ('{"city": "x", "weight": false}', "'weight' must be of type number"),
        ('{"city": "x", "exact": "yes"}', "'exact' must be of type boolean"),
        ('{"city": "x", "exact": 2}', "'exact' must be of type boolean"),
        ('{"city": "x", "names": "c"}', "'names' must be a list"),
        ('{"city": "x", "names": ["a", 1]}', r"'names\[1\]' must be one of"),
        ('{"city": "x", "city": "y"}', "'city' is given twice"),
        ('{"city": "x", "where": "{\\"a\\": "}', "'where' must be an object; its text is not valid JSON"),
        ('{"city": "Ro', "ends too early"),
        (
            '{"days": "x", "exact": "y", "weight": "z", "a": 1}',
            "missing 'city'; unknown 'a'.*'days'.*'exact'.*'weight'",
        ),
        ('{"city": "x", "names": ["c"]}', r"'names\[0\]' must be one of"),
        ('{"city": "x", "where": []}', "'where' must be an object"),
    ]
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


@effort(12, 3000)
@given(any_text() | st.recursive(st.none() | st.booleans() | st.floats() | any_text(5), st.lists).map(json.dumps))
def test_any_text_is_taken_or_refused(text: str) -> None:
    """Whatever a model writes: arguments that fit, or the one error that it is told."""
    try:
        arguments = parse_arguments("look", SCHEMA, text)
    except InvalidArguments:
        return
    assert isinstance(arguments["city"], str)


POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "label": {"type": "string"}}, "required": ["x"]}
TREE = {"type": "object", "properties": {"name": {"type": "string"}, "below": {"items": {"$ref": "#/$defs/Tree"}}}}
TREE["properties"]["below"]["type"] = "array"  # type: ignore[index]
KINDS = {
    "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
    "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}},
}
DEFS = {
    "Point": {**POINT, "additionalProperties": False},
    "Tree": TREE,
    "Cat": {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}},
    "Dog": {"type": "object", "properties": {"kind": {"const": "dog"}, "lives": {"type": "string"}}},
    "Size": {"enum": ["s", "m"], "type": "string"},
}
STRINGS = {"type": "array", "items": {"type": "string"}}
OPTIONAL = {"anyOf": [{"type": "integer"}, {"type": "null"}]}

TAKEN: list[tuple[Any, Any, Any]] = [
    # schema, what is sent, what the tool gets
    ({"type": "integer"}, "5", 5),
    ({"type": "integer"}, " -5 ", -5),
    ({"type": "integer"}, "+7", 7),
    ({"type": "integer"}, 5.0, 5),
    ({"type": "integer"}, "5.0", 5),
    ({"type": "integer"}, "1e3", 1000),
    ({"type": "integer"}, 2.0**53, 2**53),
    ({"type": "integer"}, 10**30, 10**30),
    ({"type": "integer"}, str(10**30), 10**30),
    ({"type": "number"}, "0.5", 0.5),
    ({"type": "number"}, ".5", 0.5),
    ({"type": "number"}, "5", 5),
    ({"type": "number"}, 5, 5),
    ({"type": "number"}, "1e-7", 1e-7),
    ({"type": "boolean"}, "true", True),
    ({"type": "boolean"}, "False", False),
    ({"type": "boolean"}, 1, True),
    ({"type": "boolean"}, 0, False),
    ({"type": "string"}, 12345, "12345"),
    ({"type": "string"}, "", ""),
    ({"type": "string", "format": "date"}, "2026-11-20", "2026-11-20"),
    ({"type": "string", "format": "date-time"}, "2026-11-20T15:30:00Z", "2026-11-20T15:30:00Z"),
    ({"type": "string", "format": "uuid"}, "0" * 32, "0" * 32),
    ({"type": "string", "format": "duration"}, "PT1H30M", "PT1H30M"),
    ({"type": "string", "format": "something else"}, "x", "x"),
    ({"type": "string", "pattern": "^(a+)+$"}, "b", "b"),
    ({"type": "null"}, "null", None),
    (STRINGS, ["a", "b"], ["a", "b"]),
    (STRINGS, '["a", "b"]', ["a", "b"]),
    (STRINGS, "a", ["a"]),
    (STRINGS, "a, b", ["a, b"]),
    (STRINGS, [1, "b"], ["1", "b"]),
    (STRINGS, "[]", []),
    ({"type": "array", "items": {"type": "integer"}}, 5, [5]),
    ({"type": "array", "items": {"type": "integer"}}, '["5", 6.0]', [5, 6]),
    ({"type": "array", "items": {"$ref": "#/$defs/Point"}}, {"x": 1}, [{"x": 1}]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}, ["1", 2], [1, "2"]),
    ({"type": "object"}, '{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "1", "b": 2.0}, {"a": 1, "b": 2}),
    ({"$ref": "#/$defs/Point"}, {"x": "3", "label": 4}, {"x": 3, "label": "4"}),
    ({"$ref": "#/$defs/Point"}, '{"x": 3}', {"x": 3}),
    ({"$ref": "#/$defs/Point"}, {"x": 3, "label": None}, {"x": 3}),
    (
        {"$ref": "#/$defs/Tree"},
        {"name": 1, "below": [{"name": "b", "below": '[{"name": 2}]'}]},
        {"name": "1", "below": [{"name": "b", "below": [{"name": "2"}]}]},
    ),
    ({"$ref": "#/$defs/Size"}, "m", "m"),
    ({"allOf": [{"$ref": "#/$defs/Size"}], "default": "s"}, "s", "s"),
    (OPTIONAL, None, None),
    (OPTIONAL, "5", 5),
    (OPTIONAL, "null", None),
    ({"type": ["integer", "null"]}, "5", 5),
    ({"type": ["integer", "null"]}, None, None),
    ({"type": "integer", "nullable": True}, None, None),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", "5"),  # what fits as it is comes first
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", "null"),
    ({"anyOf": [{"type": "boolean"}, {"type": "integer"}]}, 1, 1),
    ({"anyOf": [{"type": "integer"}, STRINGS]}, "x", ["x"]),
    ({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}, '{"x": "1"}', {"x": 1}),
    (KINDS, {"kind": "dog", "lives": 9}, {"kind": "dog", "lives": "9"}),
    (KINDS, {"kind": "cat", "lives": "9"}, {"kind": "cat", "lives": 9}),
    ({"enum": [1, 2]}, "2", 2),
    ({"enum": ["1", "2"]}, 2, "2"),
    ({"enum": ["a", None]}, None, None),
    ({"const": "a"}, "a", "a"),
    ({"const": 5}, 5.0, 5),
    ({"enum": [True, "yes"]}, "true", True),
    ({}, {"any": ["thing", None, 1.5]}, {"any": ["thing", None, 1.5]}),
    (True, "x", "x"),
]

REFUSED: list[tuple[Any, Any, str]] = [
    ({"type": "integer"}, "5.5", "integer"),
    ({"type": "integer"}, 5.5, "integer"),
    ({"type": "integer"}, "", "integer"),
    ({"type": "integer"}, "٣", "integer"),
    ({"type": "integer"}, "5 apples", "integer"),
    ({"type": "integer"}, "0x10", "integer"),
    ({"type": "integer"}, "1_000", "integer"),
    ({"type": "integer"}, 2.0**53 + 2, "integer"),
    ({"type": "integer"}, "9007199254740993.0", "integer"),
    ({"type": "integer"}, 1e300, "integer"),
    ({"type": "integer"}, True, "integer"),
    ({"type": "integer"}, [5], "integer"),
    ({"type": "integer"}, None, "integer"),
    ({"type": "integer", "minimum": 1}, "0", "at least 1"),
    ({"type": "integer", "maximum": 9}, 10, "at most 9"),
    ({"type": "number", "exclusiveMinimum": 0}, 0, "more than 0"),
    ({"type": "number", "exclusiveMaximum": 1}, 1, "less than 1"),
    ({"type": "integer", "multipleOf": 5}, 7, "a multiple of 5"),
    ({"type": "number"}, "3.14159265358979323846", "number"),
    ({"type": "number"}, "1e999", "number"),
    ({"type": "number"}, "nan", "number"),
    ({"type": "number"}, False, "number"),
    ({"type": "boolean"}, "yes", "boolean"),
    ({"type": "boolean"}, "1", "boolean"),
    ({"type": "boolean"}, 1.0, "boolean"),
    ({"type": "string"}, 1.5, "string"),
    ({"type": "string"}, True, "string"),
    ({"type": "string"}, None, "string"),
    ({"type": "string"}, {"a": 1}, "string"),
    ({"type": "string", "maxLength": 2}, "abc", "at most 2 characters"),
    ({"type": "string", "minLength": 1}, "", "at least 1 characters"),
    ({"type": "string", "format": "date"}, "20 November", "a date such as"),
    ({"type": "string", "format": "date-time"}, "yesterday", "a date and time such as"),
    ({"type": "string", "format": "time"}, "noon", "a time such as"),
    ({"type": "string", "format": "uuid"}, "x", "a UUID"),
    ({"type": "string", "format": "duration"}, "P", "a duration"),
    (STRINGS, '["a", ', "ends too early"),
    (STRINGS, None, "a list"),
    (STRINGS, ["a", None], r"'v\[1\]' must be of type string"),
    (STRINGS, {"a": 1}, "a list"),
    ({"type": "array", "items": {"type": "integer"}}, "5", "a list"),  # it would be changed twice
    ({"type": "array", "prefixItems": [{"type": "integer"}], "maxItems": 1}, [1, 2], "at most 1 items"),
    ({"type": "array", "minItems": 2}, [1], "at least 2 items"),
    ({"type": "array", "uniqueItems": True}, [1, 1], "each item once"),
    ({"type": "object"}, "a: 1", "an object"),
    ({"type": "object"}, [["a", 1]], "an object"),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "x"}, "'v.a' must be of type integer"),
    ({"$ref": "#/$defs/Point"}, {"x": 1, "y": 2}, "unknown 'v.y'; known are x, label"),
    ({"$ref": "#/$defs/Point"}, {"label": "a"}, "missing 'v.x'"),
    ({"$ref": "#/$defs/Point"}, {"x": None}, "'v.x' must be of type integer, not null"),
    ({"$ref": "#/$defs/Size"}, "M", '"s", "m"'),
    (OPTIONAL, "x", "one of: integer, null"),
    ({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}, {"x": "?"}, "'v.x' must be of type integer"),
    (KINDS, {"kind": "cow"}, "'v.kind' must be one of cat, dog, not 'cow'"),
    (KINDS, {}, "'v.kind' must be one of cat, dog, not null"),
    ({"enum": [1, 2]}, True, "one of 1, 2"),
    ({"enum": [1, 2]}, "1.5", "one of 1, 2"),
    ({"const": "a"}, "b", 'must be "a"'),
    (False, 1, "can't be given"),
]


def wanted(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": DEFS}


@for_each(TAKEN)
def test_what_loses_nothing_is_taken(schema: Any, sent: Any, got: Any) -> None:
    """The tool gets the value that its schema wants, of the type that it wants."""
    fitted = parse_arguments("look", wanted(schema), json.dumps({"v": sent}))

    assert fitted == {"v": got} or fitted == {}
    assert json.dumps(fitted["v"]) == json.dumps(got)


@for_each(REFUSED)
def test_what_would_lose_something_is_refused(schema: Any, sent: Any, problem: str) -> None:
    """The model is told what is wrong, and where."""
    with pytest.raises(InvalidArguments, match=problem):
        parse_arguments("look", wanted(schema), json.dumps({"v": sent}))


def test_null_leaves_out_what_may_be_left_out() -> None:
    """The function's own default then holds; what is needed is not left out."""
    schema = {"properties": {"a": {"type": "integer", "default": 3}, "b": {"type": "string"}}, "required": ["b"]}

    assert parse_arguments("look", schema, '{"a": null, "b": "x"}') == {"b": "x"}
    with pytest.raises(InvalidArguments, match="'b' must be of type string, not null"):
        parse_arguments("look", schema, '{"b": null}')


def test_a_schema_that_refers_to_itself_or_to_nothing_ends() -> None:
    """Such schemas come from outside: they let everything through, and nothing hangs."""
    for defs in ({"A": {"$ref": "#/$defs/A"}}, {"A": {"$ref": "#/$defs/B"}}, {"A": {"$ref": "elsewhere.json"}}, {}):
        schema = {"properties": {"v": {"$ref": "#/$defs/A"}}, "$defs": defs}
        assert parse_arguments("look", schema, '{"v": {"a": 1}}') == {"v": {"a": 1}}


def test_a_union_that_could_be_tried_for_ever_is_given_up() -> None:
    """Each level of nesting doubles what could be tried; the model is told after a bounded number of tries."""
    branches = [{"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]} for _ in range(3)]
    value: Any = 1
    for _ in range(60):
        value = {"a": value}
    with pytest.raises(InvalidArguments, match="too many ways"):
        fit_arguments(
            "look", {"properties": {"v": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"anyOf": branches}}}, {"v": value}
        )


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text(8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text(4), inner, max_size=3),
    max_leaves=6,
)
SCHEMAS = st.sampled_from([schema for schema, _, _ in TAKEN])


@effort(12, 5000)
@given(SCHEMAS, JSON_VALUES)
def test_what_was_fitted_fits_as_it_is(schema: Any, value: Any) -> None:
    """Fitting twice is fitting once: what a tool gets, its schema takes without any change."""
    try:
        fitted = fit_arguments("look", wanted(schema), {"v": value})
    except InvalidArguments:
        return

    assert json.dumps(fit_arguments("look", wanted(schema), fitted)) == json.dumps(fitted)


@effort(12, 5000)
@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_keeps_its_value(number: float) -> None:
    """As a number or as text: what comes out is equal to what went in, or nothing comes out."""
    for sent in (number, repr(number)):
        for kind in ("integer", "number"):
            try:
                fitted = fit_arguments("look", wanted({"type": kind}), {"v": sent})
            except InvalidArguments:
                assert int(float(number)) != number if kind == "number" else isinstance(number, float)
                continue
            assert fitted["v"] == number


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"city": b"x"}, "'city' must be a value that JSON has, not a bytes"),
        ({"city": "x", "any": LOOP}, "nested too deep"),
        ({"city": "x", "any": 10**6000}, "too large"),
        ({"city": "x", "any": float("nan")}, "'any' must be a number that JSON has, not nan"),
        ({"city": "x", "where": {1: 2}}, "where must have names that are texts, not 1"),
        ({1: 2}, "they must have names that are texts, not 1"),
        ({"city": "x", "days": 10**400}, "'days' must be a number of at most 1.798e"),
        ({"city": "x", "days": "9" * 400}, "'days' must be a number of at most"),
        ({"city": "x", "weight": "12345678901234567891"}, "'weight' .* does not keep all digits"),
        ({"city": "x", "weight": 12345678901234567891}, "'weight' .* does not keep all digits"),
        ({"city": True}, "not true"),
        ({"city": {"a": [None, False]}}, r'not {"a": \[null, false\]}'),
        ({"city": "x", "names": "[" * 100_000}, "its text is nested too deep"),
    ],
    ids=range(13),
)
def test_values_of_a_program_that_are_no_arguments_are_refused(arguments: Any, problem: str) -> None:
    """What JSON does not have, and numbers that a float or a reader of JSON would not keep."""
    with pytest.raises(InvalidArguments, match=problem):
        fit_arguments("look", SCHEMA, arguments)
