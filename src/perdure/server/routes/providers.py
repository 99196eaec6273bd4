"""Providers of models that clients register with a key of their own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from perdure.app import PROVIDERS
from perdure.core.models import KEY_CHARS_MAX, NAME_PATTERN, URL_CHARS_MAX, ModelProvider, ProviderFilter
from perdure.core.text.reprs import attributes
from perdure.library.parts.checks import Page
from perdure.library.parts.providers import ProviderFields
from perdure.server.access.gate import ServerGate
from perdure.server.wire.answers import Confirmation
from perdure.server.wire.base import ORG_ID, WireRequest, nulls
from perdure.server.wire.errors import NotSupported
from perdure.server.wire.fields import ProviderIdIn, keywords
from perdure.server.wire.http import Library, Router, pages
from perdure.server.wire.shapes import WireShape, computed, read

_OWN_PROTOCOLS = {"azure", "bedrock", "google_vertex", "chatgpt_oauth", "letta"}
"""Types of Letta's API that do not speak OpenAI's, and that no folder of `providers` speaks."""

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
        if self.access_key:
            raise NotSupported("access_key: this server speaks no protocol with one, such as Bedrock's; use `api_key`")
        if self.provider_type in _OWN_PROTOCOLS - PROVIDERS.keys():
            raise NotSupported(
                f"provider_type: this server does not speak the protocol of {self.provider_type}; a gateway with"
                " OpenAI's chat API can be registered as `openai` with its base_url"
            )
        values = attributes(self, "name", "provider_type", "base_url", "region", "api_version")
        return ProviderFields(api_key=self.api_key and self.api_key.strip(), **values)


class ProviderIn(ProviderChangesIn):
    """A new provider. Its models have the handle `name/...`."""

    name: Annotated[str, keywords(pattern=f"^{NAME_PATTERN}$")]
    provider_type: _Type
    api_key: Annotated[str, Field(max_length=KEY_CHARS_MAX)]


class ProviderCheckIn(ProviderChangesIn):
    """A provider that is only tried."""

    provider_type: _Type
    api_key: Annotated[str, Field(max_length=KEY_CHARS_MAX)]


class WireProvider(
    WireShape,
    of=ModelProvider,
    fields="id name provider_type",
    last_synced="synced_at",
    unlisted=nulls("access_key", "api_key_enc", "access_key_enc")
    | {"organization_id": ORG_ID, **read("region", "api_version", "created_at", "updated_at")},
):
    """A registered provider. No answer has its key."""

    provider_category: Literal["byok"] = "byok"
    api_key: None = None
    base_url: str | None = computed(lambda provider: provider.shown_url or None)


router = Router(tags=["providers"])


@router.get("/v1/providers/")
async def list_providers(
    library: Library,
    page: Annotated[Page, pages("provider")],
    name: str | None = None,
    provider_type: str | None = None,
) -> list[WireProvider]:
    """List the registered providers, newest first by default, without those of the server's environment."""
    where = ProviderFilter(name=name, provider_type=provider_type)
    return [WireProvider.make(provider) for provider in await library.providers.list(where, page)]


@router.post("/v1/providers/")
async def create(body: ProviderIn, library: Library, gate: ServerGate) -> WireProvider:
    """Register a provider. Its key is stored encrypted and never returned; its models can be used at once."""
    return WireProvider.make(await library.providers.create(body.fields, private=gate.allows_private))


@router.post("/v1/providers/check")
async def check(body: ProviderCheckIn, library: Library, gate: ServerGate) -> Confirmation:
    """Try a key: 401 if the provider refuses it, 400 if it can't be asked. Nothing is stored."""
    count = await library.providers.check(body.fields, private=gate.allows_private)
    return {"message": f"Valid api key for provider_type={body.provider_type} ({count} models)"}


@router.get("/v1/providers/{provider_id}")
async def retrieve(provider_id: ProviderIdIn, library: Library) -> WireProvider:
    """Get a provider."""
    return WireProvider.make(await library.providers.get(provider_id))


@router.patch("/v1/providers/{provider_id}")
async def update(
    provider_id: ProviderIdIn, body: ProviderChangesIn, library: Library, gate: ServerGate
) -> WireProvider:
    """Change the key, the address or the type of a provider."""
    return WireProvider.make(await library.providers.update(provider_id, body.fields, private=gate.allows_private))


@router.delete("/v1/providers/{provider_id}")
async def delete(provider_id: ProviderIdIn, library: Library) -> Confirmation:
    """Delete a provider with its key. Agents keep the handles of its models."""
    await library.providers.delete(provider_id)
    return {"message": f"Provider id={provider_id} successfully deleted"}


@router.post("/v1/providers/{provider_id}/check")
async def check_stored(provider_id: ProviderIdIn, library: Library) -> Confirmation:
    """Try the key of a provider."""
    return {"message": f"Valid api key ({await library.providers.check_stored(provider_id)} models)"}


@router.patch("/v1/providers/{provider_id}/refresh")
async def refresh(provider_id: ProviderIdIn, library: Library) -> WireProvider:
    """List the provider's models anew."""
    return WireProvider.make(await library.providers.refresh(provider_id))
