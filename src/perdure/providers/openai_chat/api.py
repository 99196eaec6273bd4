"""OpenAI's chat API, as the providers with an address of their own speak it."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any

from perdure.core.models import Model, ModelRequest
from perdure.providers.provider import Endpoint, ModelSource, Provider


class OpenAIApi:
    """`Api` of OpenAI's chat completions."""

    def complete_path(self, provider: Provider, path: str, query: str) -> tuple[str, str]:
        return ("/v1" if not path or (path == "/api" and provider.name == "ollama") else path), query

    def listing_request(self, endpoint: Endpoint) -> tuple[str, Mapping[str, str], Mapping[str, int]]:
        parts = urllib.parse.urlsplit(endpoint.base_url)
        url = urllib.parse.urlunsplit(parts._replace(path=f"{parts.path}/models"))
        return url, {"Authorization": f"Bearer {endpoint.api_key}"}, {}

    def build(self, source: ModelSource) -> Model:
        """The model; calls in its text are read, but not of the large hosts."""
        from perdure.providers.openai_chat.model import OpenAIChat
        from perdure.providers.openai_endpoint import Connections

        endpoint = source.endpoint
        chat = OpenAIChat(
            model=source.name,
            base_url=endpoint.base_url,
            api_key=source.api_key,
            provider=endpoint.entry.name,
            connections=source.connections.setdefault(endpoint.provider, Connections(guard=endpoint.guard)),
            reasoning_back=endpoint.entry.reasoning_back,
            traits=source.traits,
            learn=source.learn,
            look=source.look,
        )
        if endpoint.is_large(source.name):
            return chat
        from perdure.providers.text_calls.model import TextCalls

        return TextCalls(chat, traits=source.traits, learn=source.learn)

    async def payload(self, model: Model, request: ModelRequest) -> Mapping[str, Any] | None:
        from perdure.providers.openai_chat.model import OpenAIChat

        return model.payload(request) if isinstance(model, OpenAIChat) else None


API = OpenAIApi()
