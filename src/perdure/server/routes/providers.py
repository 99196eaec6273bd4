"""Providers of models that clients register with a key of their own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from starlette.requests import Request

from perdure.core.providers import ProviderFilter
from perdure.library.paging import Page
from perdure.server.http import Library, json_answer, pages
from perdure.server.routes.mcp_servers import McpGuard
from perdure.server.wire.fields import ProviderIdIn
from perdure.server.wire.providers import ProviderChangesIn, ProviderCheckIn, ProviderIn, provider_shape

router = APIRouter(tags=["providers"])


def _private_allowed(request: Request) -> bool:
    """Whether clients may name addresses on this machine and in private networks, as for MCP servers."""
    guard: McpGuard = request.app.state.mcp_guard
    return guard.allows_private


Private = Annotated[bool, Depends(_private_allowed)]


@router.get("/v1/providers/")
async def list_providers(
    library: Library,
    page: Annotated[Page, pages("provider", limit=50, order="desc")],
    name: str | None = None,
    provider_type: str | None = None,
) -> Response:
    """List the registered providers, newest first by default, without those of the server's environment."""
    where = ProviderFilter(name=name, provider_type=provider_type)
    return json_answer([provider_shape(one) for one in await library.services.providers.list(where, page)])


@router.post("/v1/providers/")
async def create(body: ProviderIn, library: Library, private: Private) -> Response:
    """Register a provider. Its key is stored encrypted and never returned; its models can be used at once."""
    return json_answer(provider_shape(await library.services.providers.create(body.fields, private=private)))


@router.post("/v1/providers/check")
async def check(body: ProviderCheckIn, library: Library, private: Private) -> Response:
    """Try a key: 401 if the provider refuses it, 400 if it can't be asked. Nothing is stored."""
    count = await library.services.providers.check(body.fields, private=private)
    return json_answer({"message": f"Valid api key for provider_type={body.provider_type} ({count} models)"})


@router.get("/v1/providers/{provider_id}")
async def retrieve(provider_id: ProviderIdIn, library: Library) -> Response:
    """Get a provider."""
    return json_answer(provider_shape(await library.services.providers.get(provider_id)))


@router.patch("/v1/providers/{provider_id}")
async def update(provider_id: ProviderIdIn, body: ProviderChangesIn, library: Library, private: Private) -> Response:
    """Change the key, the address or the type of a provider."""
    provider = await library.services.providers.update(provider_id, body.fields, private=private)
    return json_answer(provider_shape(provider))


@router.delete("/v1/providers/{provider_id}")
async def delete(provider_id: ProviderIdIn, library: Library) -> Response:
    """Delete a provider with its key. Agents keep the handles of its models."""
    await library.services.providers.delete(provider_id)
    return json_answer({"message": f"Provider id={provider_id} successfully deleted"})


@router.post("/v1/providers/{provider_id}/check")
async def check_stored(provider_id: ProviderIdIn, library: Library) -> Response:
    """Try the key of a provider."""
    count = await library.services.providers.check_stored(provider_id)
    return json_answer({"message": f"Valid api key ({count} models)"})


@router.patch("/v1/providers/{provider_id}/refresh")
async def refresh(provider_id: ProviderIdIn, library: Library) -> Response:
    """List the provider's models anew."""
    return json_answer(provider_shape(await library.services.providers.refresh(provider_id)))
