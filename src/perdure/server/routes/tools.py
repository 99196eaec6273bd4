"""Tools of the store, and those of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Query, Request

from perdure.core.errors import InvalidInput
from perdure.core.ids import ToolId
from perdure.core.specs import ToolFilter
from perdure.library.parts.checks import Page
from perdure.server.routes.agents import agent_answer, agent_replies
from perdure.server.wire import tools as wire
from perdure.server.wire.agents import WireAgent
from perdure.server.wire.answers import ToolRun
from perdure.server.wire.fields import AgentIdIn, Items, ToolIdIn
from perdure.server.wire.http import Library, Router, pages, while_connected

router = Router(tags=["tools"])

BASE_TOOLS_MAX = 1_000

_Texts = Annotated[Items[str] | None, Query(description="Several, repeated or with commas between.")]


def _split(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """The values of a parameter that is repeated, or has commas."""
    if values is None:
        return None
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


async def _list_filter(
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    names: _Texts = None,
    tool_ids: _Texts = None,
    search: Annotated[str | None, Query(description="A part of the name, in any case.")] = None,
    tool_types: _Texts = None,
    exclude_tool_types: _Texts = None,
    return_only_letta_tools: bool | None = None,
) -> ToolFilter:
    """The filter that the query of a list of tools describes."""
    all_names, ids = _split(names), _split(tool_ids)
    if name is not None:
        all_names = (name,) if all_names is None or name in all_names else ()
    return ToolFilter(
        names=all_names,
        ids=None if ids is None else tuple(map(ToolId, ids)),
        types=_split(tool_types),
        not_types=_split(exclude_tool_types) or (),
        letta=True if return_only_letta_tools else None,
        text=search,
    )


ListFilter = Annotated[ToolFilter, Depends(_list_filter)]


@router.post("/v1/tools/")
async def create(body: wire.ToolIn, library: Library) -> wire.WireTool:
    """Create a tool of a source. The same name and source again is the tool that is there."""
    return wire.tool_state_shape(await library.tools.add(body.new()))


@router.put("/v1/tools/")
async def upsert(body: wire.ToolIn, library: Library) -> wire.WireTool:
    """Create a tool of a source, or change the fields that are set of the tool of that name."""
    return wire.tool_state_shape(await library.tools.put(body.new(), fields=body.set_fields))


@router.get("/v1/tools/")
async def list_tools(library: Library, where: ListFilter, page: Annotated[Page, pages("tool")]) -> list[wire.WireTool]:
    """List tools, newest first by default."""
    return [wire.tool_state_shape(state) for state in await library.tools.page(where, page)]


@router.get("/v1/tools/count")
async def count(library: Library, where: ListFilter, exclude_letta_tools: bool | None = None) -> int:
    """Count the tools that meet all conditions."""
    if exclude_letta_tools and not where.letta:
        where = replace(where, letta=False)
    return await library.tools.count(where)


@router.post("/v1/tools/search")
async def search(body: wire.ToolSearchIn, library: Library) -> list[wire.WireToolHit]:
    """Search for tools by the words of their names, tags and descriptions, best first; without words the newest."""
    where = ToolFilter(
        types=None if body.tool_types is None else tuple(body.tool_types),
        tags=None if not body.tags else tuple(body.tags),
    )
    return wire.hits_shape(await library.tools.search_codes(body.query or "", where, limit=body.limit))


@router.post("/v1/tools/add-base-tools")
async def add_base_tools(library: Library) -> list[wire.WireTool]:
    """List the built-in tools. They are always there; older clients ask for them."""
    tools = await library.tools.page(ToolFilter(letta=True), Page(BASE_TOOLS_MAX, ascending=True))
    return [wire.tool_state_shape(state) for state in tools]


@router.post("/v1/tools/generate-schema")
async def generate_schema(body: wire.GenerateSchemaIn, library: Library) -> wire.JsonSchema:
    """Read the schema of a source; nothing is stored."""
    source_type = "typescript" if body.source_type == "typescript" else "python"
    return wire.JsonSchema.make(library.tools.read_source(body.code, source_type))


@router.post("/v1/tools/run")
async def run(body: wire.ToolRunIn, library: Library, request: Request) -> wire.ToolMessage:
    """Run a source with arguments, in the sandbox; nothing is stored. The run ends when the client disconnects."""
    run = library.tools.test_new(body.new(), body.args)
    return wire.ToolMessage.make(await while_connected(request, run), name=body.name)


@router.get("/v1/tools/{tool_id}")
async def retrieve(tool_id: ToolIdIn, library: Library) -> wire.WireTool:
    """Get a tool with its source."""
    return wire.tool_state_shape(await library.tools.state(tool_id))


@router.patch("/v1/tools/{tool_id}")
async def update(tool_id: ToolIdIn, body: wire.ToolChangesIn, library: Library) -> wire.WireTool:
    """Change the fields that are set. A new source also brings a new name, description and schema."""
    return wire.tool_state_shape(await library.tools.edit(tool_id, lambda tool: body.changes(tool.metadata)))


@router.delete("/v1/tools/{tool_id}")
async def delete(tool_id: ToolIdIn, library: Library) -> None:
    """Take a tool from all agents and remove it."""
    await library.tools.delete(tool_id)


# --- of an agent


@router.get("/v1/agents/{agent_id}/tools")
async def list_of_agent(
    agent_id: AgentIdIn, library: Library, page: Annotated[Page, pages("tool", limit=100)]
) -> list[wire.WireTool]:
    """List the agent's tools; `asc` is the order of creation. Clients before 1.0 can't ask for a second page."""
    return [wire.tool_state_shape(state) for state in await library.tools.page(ToolFilter(agent_id=agent_id), page)]


@router.patch("/v1/agents/{agent_id}/tools/attach/{tool_id}")
async def attach(agent_id: AgentIdIn, tool_id: ToolIdIn, library: Library) -> WireAgent:
    """Give the agent a tool; twice is no error."""
    await library.agent_of(agent_id).tools.attach(tool_id)
    return await agent_answer(library, agent_id)


@router.patch("/v1/agents/{agent_id}/tools/approval/{tool_name}")
async def change_approval(
    agent_id: AgentIdIn,
    tool_name: str,
    library: Library,
    body: wire.ApprovalChange | None = None,
    requires_approval: Annotated[bool | None, Query()] = None,
) -> WireAgent:
    """Set whether a person approves each call of a tool of the agent; in the body or, the older form, the query."""
    wanted = requires_approval if body is None else body.requires_approval
    if wanted is None:
        raise InvalidInput("body.requires_approval: Field required")
    await library.agent_of(agent_id).require_approval(tool_name, wanted)
    return await agent_answer(library, agent_id)


@router.patch("/v1/agents/{agent_id}/tools/detach/{tool_id}")
async def detach(agent_id: AgentIdIn, tool_id: ToolIdIn, library: Library) -> WireAgent:
    """Take a tool away from the agent."""
    await library.agent_of(agent_id).tools.detach(tool_id)
    return await agent_answer(library, agent_id)


@router.post("/v1/agents/{agent_id}/tools/{tool_name}/run")
async def run_of_agent(
    agent_id: AgentIdIn, tool_name: str, body: wire.AgentToolRunIn, library: Library, request: Request
) -> ToolRun:
    """Run a tool of the agent by hand, with its secrets and blocks. The run ends when the client disconnects."""
    run = library.agent_of(agent_id).tools.run(tool_name, body.args)
    outcome = await while_connected(request, run)
    state = await library.agent_of(agent_id).state()
    return ToolRun.make(outcome, agent_state=(await agent_replies(library, [state]))[0])
