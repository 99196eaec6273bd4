"""Connections: providers of models, MCP servers and their tools, and snippets for clients."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from perdure.app import PROVIDERS, describe_calling
from perdure.core.agents import AgentFilter
from perdure.core.errors import NotFound
from perdure.core.ids import ProviderId
from perdure.core.models import ProviderFilter
from perdure.core.text.reprs import attributes, plural
from perdure.core.text.tables import read_table
from perdure.library.parts.checks import Page
from perdure.library.parts.providers import ProviderFields
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.http import rules_machine
from perdure.ui.render import Data, Notice, Pages, field_of, form_of

PROVIDERS_MAX = 200
PROVIDER_TYPES = tuple(provider.wire_type for provider in PROVIDERS.values())
CLIENTS: Mapping[str, Mapping[str, str]] = read_table(__file__, "clients.toml")
"""Program -> `text`, what to give it, and a `note`."""

pages = Pages()


@pages.get("/connections", "connections.html", sections="connections")
async def connections(request: Request, library: AsyncPerdure) -> Data:
    """What is connected. No key is shown, not even a part of one."""
    models = library.app.models
    registered = await library.providers.list(ProviderFilter(), Page(PROVIDERS_MAX, ascending=True))
    names = {provider.name for provider in registered}
    choice = await library.app.decide()
    traits = models.traits(choice.handle)
    return {
        "title": "Connections",
        "clients": await _clients(request, library),
        "model": attributes(choice, "handle", "reason")
        | {"calling": describe_calling(traits) if traits.local or traits.calling else ""},
        "found": [
            {
                "name": endpoint.provider,
                "source": endpoint.source,
                "models": len(listing.models) if (listing := models.listings.get(endpoint.provider)) else None,
                "problem": listing.problem if listing else "",
            }
            for endpoint in models.endpoints
            if endpoint.provider not in names
        ],
        "registered": [
            attributes(provider, "id", "name", "synced_at", type="provider_type", base_url="shown_url")
            | {"has_key": bool(provider.sealed)}
            for provider in registered
        ],
        "types": list(PROVIDER_TYPES),
    }


async def _clients(request: Request, library: AsyncPerdure) -> list[Data]:
    """What other programs are told to reach this server, with the newest agent where one is named."""
    newest = await library.all_agents.page(AgentFilter(), Page(1, ascending=False), "created")
    values = {"address": str(request.base_url).rstrip("/"), "agent": newest[0].id if newest else "agent-…"}
    values |= {"imports": "", "letta_key": "", "key": "none", "openai_key": '"none"'}
    if request.app.state.gate.needs_key:
        read = 'os.environ["PERDURE_API_KEY"]'
        values |= {"key": "the API key", "imports": "import os\n\n", "openai_key": read}
        values["letta_key"] = f", api_key={read}"
    return [
        {"name": name, "note": client.get("note", ""), "text": client["text"].format(**values)}
        for name, client in CLIENTS.items()
    ]


@pages.post("/connections/found/{name}/check", shows=connections)
async def check_found(request: Request, library: AsyncPerdure) -> Notice:
    """Ask a provider of the environment, or of this machine, for its models."""
    name = request.path_params["name"]
    if name not in {endpoint.provider for endpoint in library.app.models.endpoints}:
        raise NotFound("provider", name)
    listing = await library.app.models.load_listing(name)
    if listing.problem:
        return Notice(f"{name} does not answer as it should: {listing.problem}", is_error=True)
    return Notice(f"{name} answers, and lists {plural(len(listing.models), 'model')}.")


@pages.post("/connections/providers", shows=connections)
async def add_provider(request: Request, library: AsyncPerdure) -> Notice:
    """Register a provider; its key is stored encrypted."""
    form = await form_of(request)
    fields = ProviderFields(
        name=field_of(form, "name"),
        provider_type=field_of(form, "type"),
        api_key=form.get("key") or None,
        base_url=form.get("base_url") or None,
    )
    private = rules_machine(request) or request.app.state.gate.allows_private
    provider = await library.providers.create(fields, private=private)
    return Notice(f"{provider.name} was registered.")


@pages.post("/connections/providers/{provider_id}/check", shows=connections)
async def check_provider(request: Request, library: AsyncPerdure) -> Notice:
    """Ask a provider for its models."""
    provider_id = ProviderId(request.path_params["provider_id"])
    count = await library.providers.check_stored(provider_id)
    return Notice(f"It answers, and lists {plural(count, 'model')}.")


@pages.post("/connections/providers/{provider_id}/delete", shows=connections)
async def delete_provider(request: Request, library: AsyncPerdure) -> Notice:
    """Remove a provider with its key."""
    await library.providers.delete(ProviderId(request.path_params["provider_id"]))
    return Notice("The provider was removed with its key.")
