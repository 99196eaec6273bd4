"""OpenAI's chat API, as the providers with an address of their own speak it."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from perdure.core.models import Model
from perdure.providers.provider import Endpoint, ModelSource, ProviderKind


class OpenAIApi:
    """`ProviderApi` of OpenAI's chat completions."""

    def complete_path(self, provider: ProviderKind, path: str, query: str) -> tuple[str, str]:
        return ("/v1" if not path or (path == "/api" and provider.name == "ollama") else path), query

    def listing_request(self, endpoint: Endpoint) -> tuple[str, Mapping[str, str], Mapping[str, int]]:
        parts = urllib.parse.urlsplit(endpoint.base_url)
        url = urllib.parse.urlunsplit(parts._replace(path=f"{parts.path}/models"))
        return url, {"Authorization": f"Bearer {endpoint.api_key}"}, {}

    def build(self, source: ModelSource) -> Model:
        """The model; calls in its text are read, but not of the large hosts."""
        from perdure.providers.openai_chat.model import OpenAIChat

        chat = OpenAIChat(source)
        if source.endpoint.is_large(source.name):
            return chat
        from perdure.providers.text_calls.model import TextCalls

        return TextCalls(chat, source)


API = OpenAIApi()
