"""The APIs of providers that pydantic-ai speaks: Anthropic's and Google's."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.core.models import Model
from perdure.providers.provider import Endpoint, ModelSource, ProviderKind

_LISTINGS: Mapping[str, tuple[str, str, Mapping[str, str], Mapping[str, int]]] = {
    "anthropic": ("/v1/models", "x-api-key", {"anthropic-version": "2023-06-01"}, {"limit": 1_000}),
    "google": ("/v1beta/models", "x-goog-api-key", {}, {"pageSize": 1_000}),
}
"""Provider -> path of the list of its models, header of the key, further headers, parameters."""


class DirectApi:
    """`ProviderApi` of a provider that has one of its own."""

    def complete_path(self, provider: ProviderKind, path: str, query: str) -> tuple[str, str]:
        return path.removesuffix("/v1"), ""  # their SDKs add /v1, and drop a query

    def listing_request(self, endpoint: Endpoint) -> tuple[str, Mapping[str, str], Mapping[str, int]]:
        path, key, headers, parameters = _LISTINGS[endpoint.entry.name]
        return f"{endpoint.base_url}{path}", {key: endpoint.api_key, **headers}, parameters

    def build(self, source: ModelSource) -> Model:
        from perdure.providers.pydantic_ai.model import DirectModel

        endpoint, entry = source.endpoint, source.endpoint.entry
        # Key and address are always given: the SDKs would look for missing ones in the environment, where the
        # operator's are, and an endpoint may be a client's.
        return DirectModel(
            provider=entry.name,
            model=source.name,
            api_key=endpoint.api_key,
            base_url=endpoint.base_url,
            guard=endpoint.guard,
        )


API = DirectApi()
