"""Providers of models on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from perdure.core.providers import KEY_CHARS_MAX, NAME_PATTERN, URL_CHARS_MAX, ModelProvider
from perdure.library.services.providers import ProviderFields
from perdure.server.errors import NotSupported
from perdure.server.wire.base import ORG_ID, WireRequest, nulls, stamp
from perdure.server.wire.fields import keywords

_OWN_PROTOCOLS = {"azure", "bedrock", "google_vertex", "chatgpt_oauth", "letta"}

_Key = Annotated[str | None, Field(max_length=KEY_CHARS_MAX)]
_Url = Annotated[str | None, Field(max_length=URL_CHARS_MAX)]
_Type = Annotated[str, Field(min_length=1, max_length=200)]
_Word = Annotated[str | None, Field(max_length=200)]


class ProviderChangesIn(WireRequest):
    """Changes of a provider. A field that is missing or null stays, and so does the key if it is empty."""

    name: _Word = None
    provider_type: _Type | None = None
    api_key: _Key = None
    access_key: _Key = None
    base_url: _Url = None
    region: _Word = None
    api_version: _Word = None

    @property
    def fields(self) -> ProviderFields:
        """The values, as the library takes them. Raises: NotSupported: a protocol that this server does not speak."""
        if self.provider_type in _OWN_PROTOCOLS or self.access_key:
            raise NotSupported(
                f"provider_type: this server does not speak the protocol of {self.provider_type}; a gateway with"
                " OpenAI's chat API can be registered as `openai` with its base_url"
            )
        return ProviderFields(
            name=self.name,
            provider_type=self.provider_type,
            api_key=self.api_key and self.api_key.strip(),
            base_url=self.base_url,
            region=self.region,
            api_version=self.api_version,
        )


class ProviderIn(ProviderChangesIn):
    """A new provider. Its models have the handle `name/...`."""

    name: Annotated[str, keywords(pattern=f"^{NAME_PATTERN}$")]
    provider_type: _Type
    api_key: Annotated[str, Field(max_length=KEY_CHARS_MAX)]


class ProviderCheckIn(ProviderChangesIn):
    """A provider that is only tried."""

    provider_type: _Type
    api_key: Annotated[str, Field(max_length=KEY_CHARS_MAX)]


def provider_shape(provider: ModelProvider) -> dict[str, Any]:
    """The provider with all fields of the wire, without its key."""
    return {
        "id": provider.id,
        "name": provider.name,
        "provider_type": provider.provider_type,
        "provider_category": "byok",
        **nulls("api_key", "access_key", "api_key_enc", "access_key_enc"),
        "base_url": provider.base_url or None,
        "region": provider.region,
        "api_version": provider.api_version,
        "organization_id": ORG_ID,
        "created_at": stamp(provider.created_at),
        "updated_at": stamp(provider.updated_at),
        "last_synced": stamp(provider.synced_at),
    }
