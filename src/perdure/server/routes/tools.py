"""Tools of the store, and those of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from perdure.core.ids import ToolId
from perdure.core.tools.spec import ToolFilter
from perdure.library.paging import Page
from perdure.library.services.tools import ToolState
from perdure.server.deps import Library
from perdure.server.disconnect import ClientGone, while_connected
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath, ToolPath
from perdure.server.limits import Items
from perdure.server.routes.agents import agent_answer, agent_reply
from perdure.server.wire.base import WIRE_AUTHOR, stamp
from perdure.server.wire.input import read_body
from perdure.server.wire.paging import pages
from perdure.server.wire.tools import (
    AgentToolRunIn,
    ApprovalWanted,
    GenerateSchemaIn,
    ToolChangesIn,
    ToolIn,
    ToolRunIn,
    ToolSearchIn,
    execution_shape,
    hit_shape,
    json_schema_shape,
    tool_shape,
)

router = APIRouter(tags=["tools"])

BASE_TOOLS_MAX = 1_000

GONE = 499
"""The status of an answer that nobody sees: the client has left."""

_Texts = Annotated[
    Items[str] | None,
    Query(description="Several, repeated or with commas between."),
]


def _split(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """The values of a parameter that is repeated, or has commas."""
    if values is None:
        return None
    return tuple(one.strip() for value in values for one in value.split(",") if one.strip())


def _filter(
    name: str | None,
    names: Sequence[str] | None,
    tool_ids: Sequence[str] | None,
    search: str | None,
    tool_types: Sequence[str] | None,
    exclude_tool_types: Sequence[str] | None,
    return_only_letta_tools: bool | None,
    exclude_letta_tools: bool | None = None,
) -> ToolFilter:
    all_names = _split(names)
    if name is not None:
        all_names = (name,) if all_names is None or name in all_names else ()
    ids = _split(tool_ids)
    return ToolFilter(
        names=all_names,
        ids=None if ids is None else tuple(map(ToolId, ids)),
        types=_split(tool_types),
        not_types=_split(exclude_tool_types) or (),
        letta=True if return_only_letta_tools else False if exclude_letta_tools else None,
        text=search,
    )


def _shape(state: ToolState) -> dict[str, Any]:
    return tool_shape(state.tool, state.code)


@router.post("/v1/tools/")
async def create(body: ToolIn, library: Library) -> Response:
    """Create a tool of a source. The same name and source again is the tool that is there."""
    return json_answer(_shape(await library.services.tools.create(body.new())))


@router.put("/v1/tools/")
async def upsert(body: ToolIn, library: Library) -> Response:
    """Create a tool of a source, or change the tool of that name."""
    return json_answer(_shape(await library.services.tools.upsert(body.new())))


@router.get("/v1/tools/")
async def list_tools(
    library: Library,
    page: Annotated[Page, pages("tool", limit=50, order="desc")],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    names: _Texts = None,
    tool_ids: _Texts = None,
    search: Annotated[str | None, Query(description="A part of the name, in any case.")] = None,
    tool_types: _Texts = None,
    exclude_tool_types: _Texts = None,
    return_only_letta_tools: bool | None = None,
    order_by: Annotated[Literal["created_at"] | None, Query()] = None,
) -> Response:
    """Tools, newest first by default. `before` and `after` are relative to the order."""
    where = _filter(name, names, tool_ids, search, tool_types, exclude_tool_types, return_only_letta_tools)
    return json_answer([_shape(state) for state in await library.services.tools.list(where, page)])


@router.get("/v1/tools/count")
async def count(
    library: Library,
    name: str | None = None,
    names: _Texts = None,
    tool_ids: _Texts = None,
    search: str | None = None,
    tool_types: _Texts = None,
    exclude_tool_types: _Texts = None,
    return_only_letta_tools: bool | None = None,
    exclude_letta_tools: bool | None = None,
) -> Response:
    """How many tools the filter lets through."""
    where = _filter(
        name,
        names,
        tool_ids,
        search,
        tool_types,
        exclude_tool_types,
        return_only_letta_tools,
        exclude_letta_tools,
    )
    return json_answer(await library.services.tools.count(where))


@router.post("/v1/tools/search")
async def search(body: ToolSearchIn, library: Library) -> Response:
    """The tools whose name, tags or description have the words, best first; without words the newest."""
    where = ToolFilter(
        types=None if body.tool_types is None else tuple(body.tool_types),
        tags=None if not body.tags else tuple(body.tags),
    )
    hits = await library.services.tools.search(body.query or "", where, limit=body.limit)
    return json_answer([hit_shape(hit, rank, code) for rank, (hit, code) in enumerate(hits, start=1)])


@router.post("/v1/tools/add-base-tools")
async def add_base_tools(library: Library) -> Response:
    """The built-in tools. They are there from the start; older clients ask for them."""
    tools = await library.services.tools.list(ToolFilter(letta=True), Page(BASE_TOOLS_MAX, ascending=True))
    return json_answer([_shape(state) for state in tools])


@router.post("/v1/tools/generate-schema")
async def generate_schema(body: GenerateSchemaIn, library: Library) -> Response:
    """The schema of a source; nothing is stored."""
    source_type = "typescript" if body.source_type == "typescript" else "python"
    return json_answer(json_schema_shape(library.services.tools.read_source(body.code, source_type)))


@router.post("/v1/tools/run")
async def run(body: ToolRunIn, library: Library, request: Request) -> Response:
    """Run a source with arguments, in the sandbox; nothing is stored. The run ends when the client disconnects."""
    ports = library.app.ports
    work = library.services.tools.run_source(body.new(), body.args, author=WIRE_AUTHOR)
    try:
        outcome = await while_connected(request, work)
    except ClientGone:
        return Response(status_code=GONE)
    shape = {
        "id": ports.ids.new("message"),
        "date": stamp(ports.clock.now()),
        "name": body.name,
        "message_type": "tool_return_message",
        "tool_return": outcome.text,
        "status": outcome.status,
        "tool_call_id": "null",
        "stdout": list(outcome.stdout),
        "stderr": list(outcome.stderr),
    }
    return json_answer(shape)


@router.get("/v1/tools/{tool_id}")
async def retrieve(tool_id: ToolPath, library: Library) -> Response:
    """One tool, with its source."""
    return json_answer(_shape(await library.services.tools.get(tool_id)))


@router.patch("/v1/tools/{tool_id}")
async def update(tool_id: ToolPath, body: ToolChangesIn, library: Library) -> Response:
    """Change the fields that are set. A new source also brings a new name, description and schema."""
    state = await library.services.tools.update(tool_id, lambda tool: body.changes(tool.metadata))
    return json_answer(_shape(state))


@router.delete("/v1/tools/{tool_id}")
async def delete(tool_id: ToolPath, library: Library) -> Response:
    """Take a tool from all agents and remove it."""
    await library.services.tools.delete(tool_id)
    return json_answer(None)


# --- those of an agent


@router.get("/v1/agents/{agent_id}/tools")
async def list_of_agent(
    agent_id: AgentPath, library: Library, page: Annotated[Page, pages("tool", limit=10, order="desc")]
) -> Response:
    """The agent's tools by name; `asc` is from A to Z."""
    return json_answer([_shape(state) for state in await library.services.tools.list_of_agent(agent_id, page)])


@router.patch("/v1/agents/{agent_id}/tools/attach/{tool_id}")
async def attach(agent_id: AgentPath, tool_id: ToolPath, library: Library) -> Response:
    """Give the agent a tool; twice is no error."""
    await library.services.tools.attach(agent_id, tool_id)
    return await agent_answer(library, agent_id)


@router.patch("/v1/agents/{agent_id}/tools/approval/{tool_name}")
async def change_approval(
    agent_id: AgentPath,
    tool_name: str,
    library: Library,
    request: Request,
    requires_approval: Annotated[bool | None, Query()] = None,
) -> Response:
    """Have a person approve each call of a tool of the agent, or no more; in the body or, as it was, in the query."""
    body = await request.body()
    if body or requires_approval is None:
        requires_approval = read_body(ApprovalWanted, body).requires_approval
    await library.services.approvals.require(agent_id, tool_name, requires_approval)
    return await agent_answer(library, agent_id)


@router.patch("/v1/agents/{agent_id}/tools/detach/{tool_id}")
async def detach(agent_id: AgentPath, tool_id: ToolPath, library: Library) -> Response:
    """Take a tool away from the agent."""
    await library.services.tools.detach(agent_id, tool_id)
    return await agent_answer(library, agent_id)


@router.post("/v1/agents/{agent_id}/tools/{tool_name}/run")
async def run_of_agent(
    agent_id: AgentPath, tool_name: str, body: AgentToolRunIn, library: Library, request: Request
) -> Response:
    """Run a tool of the agent by hand, with its secrets and blocks. The run ends when the client disconnects."""
    work = library.services.tools.run_of_agent(agent_id, tool_name, body.args, author=WIRE_AUTHOR)
    try:
        outcome = await while_connected(request, work)
    except ClientGone:
        return Response(status_code=GONE)
    state = await library.services.agents.get_state(agent_id)
    return json_answer(execution_shape(outcome, agent_reply(library, state)))
