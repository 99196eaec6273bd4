"""Which JSON schemas a tool can have: those by which arguments can be read."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.errors import InvalidArguments, InvalidInput
from perdure.core.tools.arguments import fit_arguments
from perdure.core.tools.schema import check_schema
from tests.support.cases import for_each


def having(part: Any, **beside: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": part}, **beside}


DEEP: dict[str, Any] = {}
for _ in range(100_000):
    DEEP = {"items": DEEP}

MALFORMED: list[tuple[Any, str]] = [
    (5, "it is 5"),
    ({"type": ["object", "null"]}, "type is"),
    ({"type": "string"}, "type is 'string'"),
    ({"properties": 5}, "properties is 5"),
    ({"required": "x"}, "required is 'x'"),
    ({"required": [[]]}, "required is"),
    (having(5), "properties.x is 5"),
    (having({"anyOf": 5}), "properties.x.anyOf is 5"),
    (having({"oneOf": []}), r"properties.x.oneOf is \[\]"),
    (having({"allOf": 3}), "properties.x.allOf is 3"),
    (having({"anyOf": [{}, 5]}), r"properties.x.anyOf\[1\] is 5"),
    (having({"enum": 5}), "properties.x.enum is 5"),
    (having({"items": 5}), "properties.x.items is 5"),
    (having({"type": "text"}), "properties.x.type is 'text': there are string"),
    (having({"type": [{}]}), "properties.x.type is"),
    (having({"type": []}), "properties.x.type is"),
    (having({"minimum": "1"}), "properties.x.minimum is '1'"),
    (having({"minLength": -1}), "properties.x.minLength is -1"),
    (having({"maxItems": float("inf")}), "properties.x.maxItems is inf"),
    (having({"format": 5}), "properties.x.format is 5"),
    (having({"discriminator": {"mapping": 5}}), "properties.x.discriminator maps 5"),
    (having({"$ref": 5}), r"properties.x.\$ref is 5"),
    (having({"$ref": "#/$defs/No"}), "leads nowhere"),
    (having({"$ref": "#/properties/x"}), "leads back to itself"),
    (having({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}), "to itself"),
    (having(DEEP), "nested too deep"),
]


@for_each(MALFORMED)
def test_a_malformed_schema_is_refused_by_its_place(schema: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        check_schema(schema)


@for_each(MALFORMED)
def test_a_call_by_a_malformed_schema_is_fitted_or_refused(schema: Any, _problem: str) -> None:
    """It may have been stored before it was looked at; nothing else than the refusal gets out."""
    for value in (1, "a", [1], {"a": 1}, None):
        try:
            fit_arguments("look", schema, {"x": value})
        except InvalidArguments:
            continue


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {}, "required": []},
        having({"type": ["string", "null"], "enum": ["a", None], "default": None}),
        having(True),
        having({"anyOf": [{"type": "string"}, {"$ref": "#"}]}),
        having({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}}),
        having({"$ref": "https://example.org/schema.json"}),
        having({"type": "array", "items": [{"type": "string"}], "minItems": 1}),
        having({"type": "number", "minimum": 0, "exclusiveMinimum": True, "x-order": 5}),
        having({"type": "object", "properties": {"type": {"type": "string"}, "enum": {"type": "integer"}}}),
    ],
)
def test_schemas_as_they_are_written_are_taken(schema: dict[str, Any]) -> None:
    """Recursive ones, those of older drafts, properties with the names of keywords."""
    check_schema(schema)
