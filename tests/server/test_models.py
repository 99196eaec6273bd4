"""The lists of models, as clients see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from letta_client.types import EmbeddingModel, Model

from perdure import AsyncPerdure
from perdure.core.errors import ModelNotFound
from perdure.server.wire.models import LlmConfig, ModelSettings, WireModelFacts, model_settings_shape, model_shape
from perdure.settings import Settings
from perdure.testing import ScriptedEmbedder, ScriptedModel
from tests.server.routed import GPT, MODEL, routed

MODEL_FIELDS = [
    *("handle", "name", "display_name", "provider_type", "provider_name", "model_type", "model"),
    *("model_endpoint_type", "model_endpoint", "provider_category", "model_wrapper", "context_window"),
    *("put_inner_thoughts_in_kwargs", "temperature", "max_tokens", "enable_reasoner", "reasoning_effort"),
    *("max_reasoning_tokens", "effort", "frequency_penalty", "compatibility_type", "verbosity", "tier"),
    *("parallel_tool_calls", "response_format", "strict", "return_logprobs", "top_logprobs", "return_token_ids"),
    *("tool_call_parser", "max_context_window"),
]
"""Names in the order in which Letta's server sends them."""


@pytest.mark.uses("extractive")
async def test_the_default_model_comes_first() -> None:
    """Clients without a choice take the first; each can really be used."""
    async with routed() as server:
        models = await server.get("/v1/models/")
        handles = [model["handle"] for model in models]

        assert handles[0] == MODEL and sorted(handles) == sorted({MODEL, GPT, "perdure/extractive"})
        for model in models:
            Model.model_validate(model)
            assert list(model) == MODEL_FIELDS
            made = await server.post("/v1/agents/", {"model": model["handle"]})
            assert made["llm_config"]["context_window"] == model["context_window"] == model["max_context_window"]
        gpt = models[handles.index(GPT)]
        assert (gpt["name"], gpt["provider_name"], gpt["provider_type"]) == ("gpt-4o-mini", "openai", "openai")
        assert (gpt["context_window"], gpt["max_tokens"]) == (128_000, 16_384)
        assert await server.get("/v1/models") == models
        assert [model.handle for model in await server.letta.models.list()] == handles


async def test_models_are_filtered() -> None:
    """By provider name, type and category."""
    async with routed() as server:

        async def handles(**params: Any) -> list[str]:
            return sorted(model["handle"] for model in await server.get("/v1/models/", **params))

        assert await handles(provider_name="openai") == [GPT]
        assert await handles(provider_name="nobody") == []
        assert await handles(provider_type="anthropic") == []
        assert GPT in await handles(provider_category=["base", "byok"])
        assert await handles(provider_category="byok") == []


async def test_embedding_models() -> None:
    """The server's own embedder is the only one. Without one the list has an entry that says so, because programs take
    the first for their agents and folders."""
    async with routed() as server:
        [none] = await server.get("/v1/models/embedding")
        EmbeddingModel.model_validate(none)
        assert (none["handle"], none["embedding_model"], none["embedding_dim"]) == ("perdure/none", "none", 0)
        agent = await server.letta.agents.create(model=GPT, embedding=none["handle"])
        assert (agent.embedding, agent.embedding_config and agent.embedding_config.embedding_model) == (
            "perdure/none",
            "none",
        )
        again = await server.letta.agents.create(model=GPT, embedding_config=agent.model_dump()["embedding_config"])
        server.library.app.embedder = ScriptedEmbedder(handle="google/text-embedding-004", dimensions=64, local=False)
        [shape] = await server.get("/v1/models/embedding")

        EmbeddingModel.model_validate(shape)
        assert (shape["handle"], shape["name"]) == ("google/text-embedding-004", "text-embedding-004")
        assert (shape["provider_type"], shape["provider_name"]) == ("google_ai", "google")
        config = (await server.letta.agents.retrieve(again.id)).embedding_config
        assert config and config.embedding_model == "text-embedding-004"
        assert (shape["embedding_dim"], shape["model_type"]) == (64, "embedding")
        assert [one.handle for one in await server.letta.models.embeddings.list()] == [shape["handle"]]


async def test_gemini_is_google_ai(tmp_path: Path) -> None:
    """Clients know Google's provider by the type `google_ai`, in the list and in an agent's settings."""
    shape = model_shape("google/gemini-2.5-flash", WireModelFacts(1_000_000, 8_192))

    assert (shape["provider_type"], shape["model_endpoint_type"]) == ("google_ai", "google_ai")
    assert shape["provider_name"] == "google"
    assert model_settings_shape("google/gemini-2.5-flash", WireModelFacts(1, 1), {})["provider_type"] == "google_ai"


async def test_handles_of_letta_are_understood(tmp_path: Path) -> None:
    """`openai-proxy/x` is `openai/x` where only that is known; every `letta/*` is the default model; nothing else is
    guessed, and the error names what there is."""
    models = {"openai/x": ScriptedModel(), "test/default": ScriptedModel()}
    settings = Settings(model="test/default")
    async with await AsyncPerdure.open(tmp_path / "agents.db", models=models, settings=settings) as perdure:
        resolve = perdure.handles.resolve

        assert await resolve("openai-proxy/x") == await resolve("openai/x") == "openai/x"
        assert {await resolve(f"letta/{name}") for name in ("letta-free", "auto", "any")} == {"test/default"}
        assert await resolve("openai/letta-free") == "test/default"
        for handle in ("openai-proxy/y", "proxy/x", "x", ""):
            with pytest.raises(ModelNotFound) as caught:
                await resolve(handle)
            assert (caught.value.handle, "openai/x" in caught.value.known) == (handle, True)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {}),
        ({"temperature": 0}, {"temperature": 0}),
        ({"max_output_tokens": 0}, {"max_output_tokens": None}),
        ({"response_format": None}, {"response_format": None}),
        ({"response_format": {"type": "text"}}, {"response_format": None}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        ),
        ({"reasoning": {"reasoning_effort": "low"}}, {"reasoning_effort": "low"}),
        ({"reasoning": {}}, {}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, {"max_reasoning_tokens": 9}),
        ({"thinking_config": {"thinking_budget": 0}}, {"max_reasoning_tokens": None}),
    ],
)
def test_settings_become_options(given: dict[str, Any], options: dict[str, Any]) -> None:
    """Only what was given; None takes an option back."""
    assert ModelSettings.model_validate(given).options() == options


def test_an_old_config_names_its_model() -> None:
    """By its handle, else by provider and model."""
    config = {"model": "m", "model_endpoint_type": "openai", "context_window": 1}

    assert LlmConfig.model_validate(config).full_handle == "openai/m"
    assert LlmConfig.model_validate(config | {"provider_name": "p"}).full_handle == "p/m"
    assert LlmConfig.model_validate(config | {"handle": "h/m"}).full_handle == "h/m"
