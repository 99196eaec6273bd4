"""Connections: providers of models, MCP servers and their tools, and snippets for clients."""

from __future__ import annotations

from dataclasses import asdict
from difflib import unified_diff

from starlette.requests import Request

from perdure.app import PROVIDERS, describe_calling
from perdure.core.agents import AgentFilter
from perdure.core.errors import NotFound
from perdure.core.ids import DEFAULT_ORG, McpServerId, ProviderId
from perdure.core.mcp import Definition, McpTool
from perdure.core.models import ProviderFilter
from perdure.core.text.reprs import attributes, plural
from perdure.library.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.providers import ProviderFields
from perdure.server.http import principal_of
from perdure.ui.render import Data, Notice, Pages, field_of, form_of, pretty

PROVIDERS_MAX = 200
PROVIDER_TYPES = tuple(provider.wire_type for provider in PROVIDERS.values())


pages = Pages()


@pages.get("/connections", "connections.html", sections="connections")
async def connections(request: Request, library: AsyncPerdure) -> Data:
    """What is connected. No key is shown, not even a part of one."""
    models = library.app.models
    registered = await library.providers.list(ProviderFilter(), Page(PROVIDERS_MAX, ascending=True))
    names = {provider.name for provider in registered}
    traits = models.traits(library.app.choice.handle)
    servers = [await library.mcp.get(server.id) for server in await library.mcp.list()]
    return {
        "title": "Connections",
        "clients": await _clients(request, library),
        "model": attributes(library.app.choice, "handle", "reason")
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
        "servers": [
            {
                **attributes(state.server, "id", "name", "transport", "failure"),
                "where": state.server.place,
                "open": state.open,
                "tools": [_mcp_tool_shape(tool) for tool in state.tools],
            }
            for state in servers
        ],
    }


def _mcp_tool_shape(tool: McpTool) -> Data:
    """A tool of a server: the definition that was approved, and the one that the server gives now."""
    changed = tool.pinned is not None and tool.seen is not None and tool.pinned != tool.seen
    return {
        **attributes(tool, "name", "local_name", "problem"),
        "approved": tool.pinned is not None,
        "changed": changed,
        "gone": tool.seen is None,
        "description": "" if tool.seen is None else tool.seen.description,
        "difference": _definition_diff(tool.pinned, tool.seen) if changed and tool.pinned and tool.seen else None,
    }


def _definition_diff(before: Definition, now: Definition) -> str:
    """What a server has changed in the definition of a tool since it was approved: description, schema and hints."""
    old, new = (pretty(asdict(one)).split("\n") for one in (before, now))
    return "\n".join(list(unified_diff(old, new, lineterm=""))[2:])


async def _clients(request: Request, library: AsyncPerdure) -> list[Data]:
    """What other programs are told to reach this server, with the newest agent where one is named."""
    address, key = str(request.base_url).rstrip("/"), "none"
    shell = python = ""
    if request.app.state.sessions.needed:
        key, python, shell = "the API key", ', api_key=os.environ["PERDURE_API_KEY"]', "LETTA_API_KEY=$PERDURE_API_KEY "
    newest = await library.all_agents.page(AgentFilter(), Page(1, ascending=False), "created")
    agent = newest[0].id if newest else "agent-…"
    imports = "import os\n\n" if python else ""
    api_key = 'os.environ["PERDURE_API_KEY"]' if python else '"none"'
    letta = f'{imports}from letta_client import Letta\n\nclient = Letta(base_url="{address}"{python})'
    typescript = f'import Letta from "@letta-ai/letta-client";\n\nconst client = new Letta({{ baseURL: "{address}" }});'
    openai = (
        f'{imports}from openai import OpenAI\n\nclient = OpenAI(base_url="{address}/v1", api_key={api_key})\n'
        f'answer = client.chat.completions.create(\n    model="{agent}",\n'
        '    messages=[{"role": "user", "content": "Hello"}],\n)'
    )
    editor = f"Base URL   {address}/v1\nAPI key    {key}\nModel      {agent}"
    terminal = (
        "Before you start, run `perdure search WORDS` for what was said before.\n"
        'To ask or tell the agent something, run `perdure "TEXT"`.'
    )
    return [
        {"name": "letta-client, Python", "note": "", "text": letta},
        {"name": "letta-client, TypeScript", "note": "", "text": typescript},
        {"name": "Letta Code", "note": "", "text": f"{shell}LETTA_BASE_URL={address} letta"},
        {"name": "OpenAI's SDK", "note": "the model is the id of an agent", "text": openai},
        {
            "name": "Cursor, and programs with a field for OpenAI's address",
            "note": "Cursor calls it from its own servers, which do not reach 127.0.0.1",
            "text": editor,
        },
        {"name": "Claude Code", "note": "lines for its CLAUDE.md; it runs the commands", "text": terminal},
    ]


def _rules_machine(request: Request) -> bool:
    """Whether the request is an administrator's of the default organisation, who may name addresses inside. Those of
    others are clients, as over the API."""
    return principal_of(request).org_id == DEFAULT_ORG


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
    private = _rules_machine(request) or request.app.state.mcp_guard.allows_private
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


@pages.post("/connections/mcp", shows=connections)
async def add_server(request: Request, library: AsyncPerdure) -> Notice:
    """Register an MCP server by its address; its tools wait for approval."""
    form = await form_of(request)
    name, url, token = field_of(form, "name"), field_of(form, "url"), form.get("token") or None
    private = None if _rules_machine(request) else await request.app.state.mcp_guard.private(url)
    await library.mcp.add_and_read(name, url=url, token=token, private=private)
    return Notice(f"{name} was registered. Approve those of its tools that agents may have.")


@pages.post("/connections/mcp/{server_id}/refresh", shows=connections)
async def refresh_server(request: Request, library: AsyncPerdure) -> Notice:
    """Read the tools of a server again."""
    await library.mcp.refresh(McpServerId(request.path_params["server_id"]))
    return Notice("Its tools were read.")


@pages.post("/connections/mcp/{server_id}/approve", shows=connections)
async def approve_tool(request: Request, library: AsyncPerdure) -> Notice:
    """Approve a tool's definition as the server gives it now."""
    name = field_of(await form_of(request), "tool")
    await library.mcp.approve(McpServerId(request.path_params["server_id"]), [name])
    return Notice(f"{name} was approved.")


@pages.post("/connections/mcp/{server_id}/delete", shows=connections)
async def delete_server(request: Request, library: AsyncPerdure) -> Notice:
    """Remove a server with its tools."""
    await library.mcp.remove(McpServerId(request.path_params["server_id"]))
    return Notice("The server was removed with its tools.")
