"""Tools: making, finding, changing, trying and removing them; and those that an agent has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ToolId
from perdure.core.tools.spec import Tool, ToolFilter
from perdure.domain.tools.search import search_tools
from perdure.domain.tools.units import NewTool, create_tool, made_tool, update_tool, upsert_tool
from perdure.library.approval import set_approval
from perdure.library.paging import Page
from perdure.library.tool_runs import check_sandbox_limits, run_source, run_tool
from perdure.server.deps import Library
from perdure.server.disconnect import ClientGone, while_connected
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath, ToolPath
from perdure.server.limits import Items
from perdure.server.routes.agents import agent_reply, changed_agent, parts_of
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
from perdure.storage.tx import Tx

__all__ = ["router"]

router = APIRouter(tags=["tools"])

BASE_TYPES = "letta_"

GONE = 499
"""What nobody sees: the client has left."""

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
    wanted = _split(names)
    if name is not None:
        wanted = (name,) if wanted is None or name in wanted else ()
    ids = _split(tool_ids)
    return ToolFilter(
        names=wanted,
        ids=None if ids is None else tuple(map(ToolId, ids)),
        types=_split(tool_types),
        not_types=_split(exclude_tool_types) or (),
        letta=True if return_only_letta_tools else False if exclude_letta_tools else None,
        text=search,
    )


def _shapes(tx: Tx, tools: Sequence[Tool]) -> list[dict[str, Any]]:
    codes = tx.tools.codes([tool.id for tool in tools if tool.spec.kind == "custom"])
    return [tool_shape(tool, codes.get(tool.id)) for tool in tools]


@router.post("/v1/tools/")
async def create(body: ToolIn, library: Library) -> Response:
    """Make a tool of a source; the same name and source again is the tool that is there."""
    return await _made(library, body, upsert=False)


@router.put("/v1/tools/")
async def upsert(body: ToolIn, library: Library) -> Response:
    """Make a tool of a source, or change the one of its name."""
    return await _made(library, body, upsert=True)


async def _made(library: Library, body: ToolIn, *, upsert: bool) -> Response:
    app = library.app
    new, now = body.new(), app.ports.clock.now()
    check_sandbox_limits(app, memory_mb=new.memory_mb, timeout_s=new.timeout_s)
    tool_id = ToolId(app.ports.ids.new("tool"))

    def unit(tx: Tx) -> Any:
        tool = (upsert_tool if upsert else create_tool)(tx, new, tool_id, cipher=app.cipher, at=now)
        return tool_shape(tool, tx.tools.code(tool.id))

    return json_answer(await app.store.write(unit))


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

    def unit(tx: Tx) -> Any:
        tools = tx.tools.page(
            where=where,
            ascending=page.ascending,
            limit=page.limit,
            after=None if page.after is None else ToolId(page.after),
            before=None if page.before is None else ToolId(page.before),
        )
        return _shapes(tx, tools)

    return json_answer(await library.app.store.read(unit))


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
    """How many tools there are, of those that are meant."""
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
    return json_answer(await library.app.store.read(lambda tx: tx.tools.count(where)))


@router.post("/v1/tools/search")
async def search(body: ToolSearchIn, library: Library) -> Response:
    """The tools whose name, tags or description have the words, best first; without words the newest."""
    where = ToolFilter(
        types=None if body.tool_types is None else tuple(body.tool_types),
        tags=None if not body.tags else tuple(body.tags),
    )

    def unit(tx: Tx) -> Any:
        hits = search_tools(tx, body.query or "", where=where, limit=body.limit)
        codes = tx.tools.codes([hit.tool.id for hit in hits])
        return [hit_shape(hit, rank, codes.get(hit.tool.id)) for rank, hit in enumerate(hits, start=1)]

    return json_answer(await library.app.store.read(unit))


@router.post("/v1/tools/add-base-tools")
async def add_base_tools(library: Library) -> Response:
    """The built-in tools. They are there from the start; older clients ask for them."""

    def unit(tx: Tx) -> Any:
        return _shapes(tx, tx.tools.page(where=ToolFilter(letta=True), ascending=True, limit=1_000))

    return json_answer(await library.app.store.read(unit))


@router.post("/v1/tools/generate-schema")
async def generate_schema(body: GenerateSchemaIn, library: Library) -> Response:
    """The schema that a source says; nothing is stored."""
    source_type = "typescript" if body.source_type == "typescript" else "python"
    tool, _ = made_tool(NewTool(source=body.code, source_type=source_type), ToolId(""))
    return json_answer(json_schema_shape(tool))


@router.post("/v1/tools/run")
async def run(body: ToolRunIn, library: Library, request: Request) -> Response:
    """Try a source with arguments, in the sandbox; nothing is stored. It ends when the client leaves."""
    app = library.app
    try:
        outcome = await while_connected(request, run_source(app, body.new(), body.args, author=WIRE_AUTHOR))
    except ClientGone:
        return Response(status_code=GONE)
    shape = {
        "id": app.ports.ids.new("message"),
        "date": stamp(app.ports.clock.now()),
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
    return json_answer(await library.app.store.read(lambda tx: _shapes(tx, [tx.tools.get(tool_id)])[0]))


@router.patch("/v1/tools/{tool_id}")
async def update(tool_id: ToolPath, body: ToolChangesIn, library: Library) -> Response:
    """Change what is given; a new source says name, description and schema anew."""
    check_sandbox_limits(library.app, memory_mb=body.memory_mb, timeout_s=body.timeout_s)
    now = library.app.ports.clock.now()

    def unit(tx: Tx) -> Any:
        changes = body.changes(tx.tools.get(tool_id).metadata)
        tool = update_tool(tx, tool_id, changes, cipher=library.app.cipher, at=now)
        return tool_shape(tool, tx.tools.code(tool.id))

    return json_answer(await library.app.store.write(unit))


@router.delete("/v1/tools/{tool_id}")
async def delete(tool_id: ToolPath, library: Library) -> Response:
    """Take a tool from all agents and remove it."""
    await library.tools.delete(tool_id)
    return json_answer(None)


# --- those of an agent


@router.get("/v1/agents/{agent_id}/tools")
async def list_of_agent(
    agent_id: AgentPath, library: Library, page: Annotated[Page, pages("tool", limit=10, order="desc")]
) -> Response:
    """The agent's tools by name; `asc` is from A to Z."""

    def unit(tx: Tx) -> Any:
        tx.agents.model(agent_id)
        tools = page.select(tx.tools.of_agent(agent_id), kind="tool of this agent", id_of=lambda tool: tool.id)
        return _shapes(tx, tools)

    return json_answer(await library.app.store.read(unit))


@router.patch("/v1/agents/{agent_id}/tools/attach/{tool_id}")
async def attach(agent_id: AgentPath, tool_id: ToolPath, library: Library) -> Response:
    """Give the agent a tool; twice is no error."""

    def unit(tx: Tx) -> AgentId:
        tx.agents.model(agent_id)
        tx.tools.attach(agent_id, tx.tools.get(tool_id).spec.name)
        return agent_id

    return await changed_agent(library, unit)


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
    wanted, now = requires_approval, library.app.ports.clock.now()

    def unit(tx: Tx) -> AgentId:
        set_approval(tx, agent_id, tool_name, required=wanted, at=now)
        return agent_id

    return await changed_agent(library, unit)


@router.patch("/v1/agents/{agent_id}/tools/detach/{tool_id}")
async def detach(agent_id: AgentPath, tool_id: ToolPath, library: Library) -> Response:
    """Take a tool away from the agent."""

    def unit(tx: Tx) -> AgentId:
        tx.agents.model(agent_id)
        tx.tools.detach(agent_id, tx.tools.get(tool_id).spec.name)
        return agent_id

    return await changed_agent(library, unit)


@router.post("/v1/agents/{agent_id}/tools/{tool_name}/run")
async def run_of_agent(
    agent_id: AgentPath, tool_name: str, body: AgentToolRunIn, library: Library, request: Request
) -> Response:
    """Run a tool of the agent by hand, with its secrets and blocks. It ends when the client leaves."""
    app = library.app

    def unit(tx: Tx) -> Tool:
        tx.agents.model(agent_id)
        tools = {tool.spec.name: tool for tool in tx.tools.of_agent(agent_id)}
        if tool_name not in tools:
            raise NotFound("tool of this agent", tool_name, hint=f"it has {', '.join(tools) or 'none'}")
        return tools[tool_name]

    tool = await app.store.read(unit)
    work = run_tool(app, tool, body.args, agent_id=agent_id, author=WIRE_AUTHOR)
    try:
        outcome = await while_connected(request, work)
    except ClientGone:
        return Response(status_code=GONE)
    parts = await app.store.read(lambda tx: parts_of(tx, tx.agents.get(agent_id)))
    return json_answer(execution_shape(outcome, agent_reply(library, parts)))
