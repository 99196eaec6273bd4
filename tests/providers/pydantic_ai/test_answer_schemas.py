"""A schema of the answer that a provider does not take, or can't take with the same meaning, stands in the prompt."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from perdure.core.errors import ModelError
from perdure.core.models import ModelRequest
from perdure.features.facts.extraction.model_extractor import answer_schema
from perdure.features.facts.values.extraction import FactType, ReadBatch, Schema
from perdure.providers.pydantic_ai.model import DirectModel
from tests.providers.pydantic_ai.support import KEY, MODELS, asking
from tests.providers.pydantic_ai.test_requests import ANSWERS, ANTHROPIC, GOOGLE, OPENAI, wire
from tests.support.http_payloads import Payload, PayloadServer

FACTS = answer_schema(
    ReadBatch(
        turns=(),
        schema=Schema(
            entity_types={"Person": {"properties": {"age": {"type": "integer"}}}, "Location": {}},
            fact_types=[FactType(name="HOME", subject_type="Person", object_type="Location")],
        ),
    )
)


def properties(**parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"wanted": {"type": "string"}, **parts}}


SCHEMAS: list[dict[str, Any]] = [
    dict(FACTS),
    dict(answer_schema(ReadBatch(turns=()))),
    properties(x={}),
    properties(x=True),
    properties(x={"type": ["integer", "null"]}),
    properties(x={"anyOf": [{"type": "string"}, {"type": "null"}]}),
    properties(x={"oneOf": [{"type": ["string", "null"]}, {"type": "array"}]}),
    properties(x={"enum": ["a", None]}),
    properties(x={"not": {"type": "string"}}),
    properties(x={"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}),
    properties(x={"type": "object"}),
    properties(x={"type": "object", "additionalProperties": {"type": "string"}}),
    {"anyOf": [properties(a={"type": "string"}), properties(b={"type": ["integer", "null"]})]},
    {"properties": {"wanted": {"type": "string"}}},
    {"type": "object", "properties": {"wanted": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": ["string", "null"]}}},
]


def shaped(provider: str, schema: Any, *, tools: bool = True) -> ModelRequest:
    """A request for an answer of this schema."""
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    request = asking(provider, response_format=shape)
    return request if tools else replace(request, tools=())


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(
    ("provider", "model"), [(ANTHROPIC, ""), (ANTHROPIC, "claude-3-x"), (GOOGLE, ""), (OPENAI, "")]
)
@pytest.mark.parametrize("tools", [True, False])
async def test_every_schema_reaches_every_provider(provider: str, model: str, tools: bool, schema: Any) -> None:
    """Beside the prompt or in it; with tools and without."""
    body = await wire(provider, shaped(provider, schema, tools=tools), model=model)

    assert "wanted" in json.dumps(body) or "SUPERSEDE" in json.dumps(body)


@pytest.mark.parametrize("part", [{"type": "object"}, {"type": "object", "additionalProperties": {"type": "string"}}])
async def test_an_object_of_any_members_is_not_closed(part: dict[str, Any]) -> None:
    """Anthropic's client would make it one of no members."""
    body = await wire(ANTHROPIC, shaped(ANTHROPIC, properties(x=part)))

    assert "output_config" not in body and '"wanted"' in json.dumps(body["system"]).replace("\\", "")


REFUSALS = {
    ANTHROPIC: {"type": "error", "error": {"type": "invalid_request_error", "message": "output_config: Extra inputs"}},
    GOOGLE: {
        "error": {"code": 400, "message": "JSON mode is not enabled for this model", "status": "INVALID_ARGUMENT"}
    },
    OPENAI: {"error": {"message": "Unsupported parameter: 'text.format' of type 'json_schema'", "code": "x"}},
}


@pytest.mark.parametrize("provider", MODELS)
async def test_a_provider_that_refuses_the_schema_gets_it_in_the_prompt(provider: str) -> None:
    """It is asked again at once, and from then on so; what is refused for something else is not."""
    request = shaped(provider, properties(), tools=False)
    refusal = Payload.json(REFUSALS[provider], status=400)
    other = Payload.json({"error": {"message": "max_tokens is too large", "code": 400}}, status=400)
    async with PayloadServer(refusal, ANSWERS[provider], ANSWERS[provider], other) as server:
        model = DirectModel(provider=provider, model=MODELS[provider], api_key=KEY, base_url=server.url)
        for _ in range(2):
            assert [piece async for piece in model.respond(request)]
        with pytest.raises(ModelError, match="max_tokens"):
            [piece async for piece in model.respond(request)]
        await model.aclose()
        bodies = [received.json for received in server.received]

    shapes = ["output_config", "responseJsonSchema", "json_schema"]
    beside = [any(name in json.dumps(body) for name in shapes) for body in bodies]
    in_prompt = ["Answer with one JSON object of this schema" in json.dumps(body) for body in bodies]
    assert (beside, in_prompt) == ([True, False, False, False], [False, True, True, True])
