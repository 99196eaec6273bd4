"""A model at any server with OpenAI's chat API, as the registry makes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.core.models import NO_TRAITS, ModelTraits
from perdure.providers.openai_chat.model import OpenAIChat
from perdure.providers.openai_endpoint import HttpClients
from perdure.providers.provider import NO_KEY, PROVIDERS, Endpoint, ModelSource


def openai_chat(
    *,
    model: str,
    base_url: str,
    api_key: str | None = None,
    provider: str = "openai",
    connections: HttpClients | None = None,
    traits: Callable[[], ModelTraits] = lambda: NO_TRAITS,
    **options: Any,
) -> OpenAIChat:
    """The model; `options` are those of `OpenAIChat`. A provider that nobody knows is like vLLM."""
    like = "" if provider in PROVIDERS else "vllm"
    endpoint = Endpoint(provider=provider, base_url=base_url, api_key=api_key or NO_KEY, like=like)
    shared = {} if connections is None else {provider: connections}
    return OpenAIChat(ModelSource(endpoint=endpoint, name=model, connections=shared, traits=traits), **options)
