"""Agents: making, finding, changing and removing them, and the tools they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Response

from perdure.app import App
from perdure.context.request.authorship import input_tokens
from perdure.core.agents import DEFAULT_AGENT_TYPE, Agent, AgentFilter, AgentOrder
from perdure.core.errors import EmptyMessage, MessageTooLarge, ModelNotFound
from perdure.core.ids import AgentId, BlockId, FolderId, MessageId, ToolId
from perdure.core.messages import Draft, Text
from perdure.core.ports import Randomness
from perdure.core.runs import StopReason
from perdure.domain.agents.units import AgentChanges, NewAgent, check_rule_arguments, create_agent, update_agent
from perdure.domain.blocks.units import create_block
from perdure.domain.files.folders import detach_folder
from perdure.domain.secrets import replace_secrets
from perdure.engine.approvals.answers import find_pending
from perdure.library.paging import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.folders import attach_and_open
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath
from perdure.server.limits import Items, Tags
from perdure.server.wire.agents import (
    BASE_TOOLS,
    AgentChangesIn,
    AgentIn,
    AgentParts,
    InitialMessage,
    agent_shape,
    agent_type_of,
    merged_settings,
)
from perdure.server.wire.approvals import in_context_ids, pending_shape
from perdure.server.wire.base import WIRE_AUTHOR
from perdure.server.wire.blocks import block_shape, memory_shape
from perdure.server.wire.models import facts_of, handles_of
from perdure.server.wire.paging import pages
from perdure.storage.tx import Tx

__all__ = ["agent_answer", "agent_reply", "agents_with_block", "changed_agent", "parts_of", "router"]

router = APIRouter(tags=["agents"])

HIDDEN_TAG = "role:subagent"
"""Agents with this tag are hidden, whatever else is said."""

_ORDERS: dict[str, AgentOrder] = {"created_at": "created", "updated_at": "updated", "last_run_completion": "used"}
_OrderBy = Literal["created_at", "updated_at", "last_run_completion"]

_ADJECTIVES = [
    "Amber",
    "Brave",
    "Calm",
    "Clever",
    "Early",
    "Gentle",
    "Golden",
    "Keen",
    "Lively",
    "Lucky",
    "Mellow",
    "Nimble",
    "Quiet",
    "Silver",
    "Swift",
    "Warm",
]
_NOUNS = [
    "Badger",
    "Cedar",
    "Comet",
    "Falcon",
    "Harbor",
    "Heron",
    "Lantern",
    "Maple",
    "Meadow",
    "Otter",
    "Pebble",
    "Raven",
    "River",
    "Sparrow",
    "Willow",
    "Wren",
]


# --- agents


async def _model_of(body: AgentChangesIn, app: App, agent_id: AgentId | None = None) -> str | None:
    """The handle of the model that is asked for; a server of local models is asked again before one is refused.

    Args:
        agent_id: an agent keeps the model that it has, whatever became of that: clients send back what they were shown.
    Raises: ModelNotFound.
    """
    if body.asked_model is not None:
        await app.models.look_for(body.asked_model)
    try:
        return body.handle(app.models.handles())
    except ModelNotFound as error:
        if agent_id is not None and await app.store.read(lambda tx: tx.agents.model(agent_id)) == error.handle:
            return error.handle
        raise app.models.not_found(error.handle) from None


@router.post("/v1/agents/")
async def create(body: AgentIn, library: Library) -> Response:
    """Make an agent with its blocks, tools and first messages, all or nothing."""
    body.check_supported()
    app = library.app
    handle = await _model_of(body, app)
    if handle is None:
        detail = "INVALID_ARGUMENT: Must specify either model or llm_config in request"
        raise HTTPException(400, f"{detail}. There are {', '.join(handles_of(app))}.")
    tags = tuple(dict.fromkeys(body.tags or ()))
    new = NewAgent(
        name=body.name or _any_name(app.ports.randomness),
        model=handle,
        agent_type=DEFAULT_AGENT_TYPE,
        system=body.prompt(),
        description=body.description,
        timezone=body.timezone or "UTC",
        tools=(),
        tags=tags,
        metadata=body.metadata or {},
        settings=merged_settings({}, body),
    )
    said = _drafts(library, body.initial_message_sequence or ())
    now = app.ports.clock.now()

    def unit(tx: Tx) -> AgentId:
        agent = create_agent(tx, new, ids=app.ports.ids, author=WIRE_AUTHOR, at=now)
        if body.hidden or HIDDEN_TAG in tags:
            tx.agents.put(replace(agent, hidden=True))
        block_ids = [BlockId(app.ports.ids.new("block")) for _ in body.memory_blocks or ()]
        for block_id, block in zip(block_ids, body.memory_blocks or (), strict=True):
            create_block(tx, block_id, **block.fields, author=WIRE_AUTHOR, at=now)
        tx.blocks.attach(agent.id, *block_ids, *(body.block_ids or ()))
        tx.tools.attach(agent.id, *_tool_names(tx, body))
        check_rule_arguments(tx, agent.id, agent.settings)
        for folder_id in dict.fromkeys((*(body.folder_ids or ()), *(body.source_ids or ()))):
            attach_and_open(tx, app.ports, agent.id, folder_id)
        if body.asked_secrets is not None:
            replace_secrets(tx, agent.id, body.asked_secrets, cipher=app.cipher, at=now)
        if said:
            drafts, tokens = zip(*said, strict=True)
            tx.messages.append(agent.id, drafts, conversation_seq=0, at=now, tokens=tokens)
        return agent.id

    return await changed_agent(library, unit)


@router.get("/v1/agents/")
async def list_agents(
    library: Library,
    page: Annotated[Page, pages("agent", limit=50, order="desc")],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    query_text: Annotated[str | None, Query(description="A part of the name, in any case.")] = None,
    tags: Annotated[Tags | None, Query()] = None,
    match_all_tags: bool = False,
    order_by: Annotated[_OrderBy | None, Query()] = None,
    sort_by: Annotated[_OrderBy | None, Query(deprecated=True)] = None,
    created_by_id: Annotated[str | None, Query()] = None,
    last_stop_reason: Annotated[StopReason | None, Query()] = None,
    identity_id: Annotated[str | None, Query()] = None,
    identifier_keys: Annotated[Items[str] | None, Query()] = None,
    template_id: Annotated[str | None, Query()] = None,
    base_template_id: Annotated[str | None, Query()] = None,
    show_hidden_agents: bool = False,
) -> Response:
    """Agents, newest first by default, without the hidden ones. `before` and `after` are relative to the order."""
    if identity_id or identifier_keys or template_id or base_template_id:
        return json_answer([])  # there are neither identities nor templates here, so no agent is of one
    where = AgentFilter(
        name=name,
        text=query_text,
        tags=tuple(tags or ()),
        all_tags=match_all_tags,
        created_by=created_by_id,
        stop_reason=last_stop_reason,
        hidden=None if show_hidden_agents else False,
    )
    return json_answer(await agent_replies(library, where, page, order=_ORDERS[order_by or sort_by or "created_at"]))


@router.get("/v1/agents/count")
async def count(library: Library) -> Response:
    """How many agents there are, without the hidden ones."""
    return json_answer(await library.app.store.read(lambda tx: tx.agents.count(AgentFilter(hidden=False))))


@router.get("/v1/agents/{agent_id}")
async def retrieve(agent_id: AgentPath, library: Library) -> Response:
    """One agent, with everything that belongs to it."""
    return await agent_answer(library, agent_id)


@router.patch("/v1/agents/{agent_id}")
async def update(agent_id: AgentPath, body: AgentChangesIn, library: Library) -> Response:
    """Change what is given; `tool_ids` and `block_ids` are the whole new sets, `tags` and `metadata` the new values."""
    body.check_supported()
    app = library.app
    handle = await _model_of(body, app, agent_id)
    now = app.ports.clock.now()

    def unit(tx: Tx) -> AgentId:
        tx.agents.lock(agent_id)
        before = tx.agents.get(agent_id)
        settings = merged_settings(before.settings, body, model_changes=handle not in (None, before.model))
        changes: AgentChanges = {"settings": settings}
        if handle is not None:
            changes["model"] = handle
        if body.name is not None:
            changes["name"] = body.name
        if body.description is not None:
            changes["description"] = body.description
        if body.system is not None:
            changes["system"] = body.prompt()
        if body.timezone is not None:
            changes["timezone"] = body.timezone
        if body.metadata is not None:
            changes["metadata"] = body.metadata
        if body.tags is not None:
            changes["tags"] = tuple(dict.fromkeys(body.tags))
        agent = update_agent(tx, agent_id, changes, author=WIRE_AUTHOR, at=now)
        hidden = HIDDEN_TAG in agent.tags or (agent.hidden if body.hidden is None else body.hidden)
        if hidden != agent.hidden:
            tx.agents.put(replace(agent, hidden=hidden, updated_at=now, updated_by=WIRE_AUTHOR.id))
        if body.tool_ids is not None:
            _set_tools(tx, agent_id, body.tool_ids)
        if body.block_ids is not None:
            _set_blocks(tx, agent_id, body.block_ids)
        if (folder_ids := body.folder_ids if body.folder_ids is not None else body.source_ids) is not None:
            _set_folders(tx, app, agent_id, folder_ids)
        if body.asked_secrets is not None:
            replace_secrets(tx, agent_id, body.asked_secrets, cipher=app.cipher, at=now)
        return agent_id

    return await changed_agent(library, unit)


@router.delete("/v1/agents/{agent_id}")
async def delete(agent_id: AgentPath, library: Library) -> Response:
    """Remove an agent with its whole history; its blocks and archives stay."""
    await library.delete_agent(agent_id)
    return json_answer({"message": f"Agent id={agent_id} successfully deleted"})


@router.get("/v1/agents/{agent_id}/core-memory")
async def core_memory(agent_id: AgentPath, library: Library) -> Response:
    """The agent's blocks, in the older shape."""

    def unit(tx: Tx) -> Any:
        agent = tx.agents.get(agent_id)
        return memory_shape(agent_type_of(agent), [block_shape(block) for block in tx.blocks.of_agent(agent_id)])

    return json_answer(await library.app.store.read(unit))


# --- what other routes use too


def parts_of(tx: Tx, agent: Agent) -> AgentParts:
    """What the agent's state is put together from."""
    runs = tx.runs.list(agent.id, limit=2)
    tools = tx.tools.of_agent(agent.id)
    return AgentParts(
        agent=agent,
        blocks=tx.blocks.of_agent(agent.id),
        tools=tools,
        codes=tx.tools.codes([tool.id for tool in tools if tool.spec.kind == "custom"]),
        folders=tx.folders.of_agent(agent.id),
        message_ids=in_context_ids(tx, agent.id, 0),
        run=next((run for run in runs if run.ended), None),
        secrets=tx.secrets.list(agent.id),
        pending=_pending(tx, agent.id),
    )


def _pending(tx: Tx, agent_id: AgentId) -> Mapping[str, Any] | None:
    """The request for approval in the agent's first conversation."""
    found = find_pending(tx, tx.conversations.at(agent_id, 0))
    return None if found is None else pending_shape(found.message, {one.call.call_id for one in found.waiting})


async def changed_agent(library: AsyncPerdure, unit: Callable[[Tx], AgentId]) -> Response:
    """What `unit` leaves of the agent whose id it gives. All of an agent is read when others may write again."""
    return await agent_answer(library, await library.app.store.write(unit))


async def agent_answer(library: AsyncPerdure, agent_id: AgentId) -> Response:
    """The agent as it is now, as the wire shows it. Raises: NotFound."""
    return json_answer(agent_reply(library, await library.app.store.read(_whole, agent_id)))


def agent_reply(library: AsyncPerdure, parts: AgentParts) -> dict[str, Any]:
    """The agent as the wire shows it."""
    return agent_shape(parts, facts_of(library.app, parts.agent.model), library.app.embedder)


async def agent_replies(
    library: AsyncPerdure, where: AgentFilter, page: Page, *, order: AgentOrder = "created"
) -> list[dict[str, Any]]:
    """A page of agents as the wire shows them. Raises: NotFound: the page begins at no agent."""

    def unit(tx: Tx) -> list[AgentParts]:
        agents = tx.agents.page(
            where=where,
            order=order,
            ascending=page.ascending,
            limit=page.limit,
            after=None if page.after is None else AgentId(page.after),
            before=None if page.before is None else AgentId(page.before),
        )
        return [parts_of(tx, agent) for agent in agents]

    return [agent_reply(library, parts) for parts in await library.app.store.read(unit)]


async def agents_with_block(library: AsyncPerdure, block_id: BlockId, page: Page) -> list[dict[str, Any]]:
    """A page of the agents that have a block, as the wire shows them. Raises: NotFound: the page begins at no agent."""
    return await agent_replies(library, AgentFilter(block_id=block_id), page)


def _set_folders(tx: Tx, app: App, agent_id: AgentId, wanted: Sequence[FolderId]) -> None:
    for folder in tx.folders.of_agent(agent_id):
        if folder.id not in wanted:
            detach_folder(tx, agent_id, folder.id)
    for folder_id in dict.fromkeys(wanted):
        attach_and_open(tx, app.ports, agent_id, folder_id)


def _whole(tx: Tx, agent_id: AgentId) -> AgentParts:
    return parts_of(tx, tx.agents.get(agent_id))


def _tool_names(tx: Tx, body: AgentIn) -> Sequence[str]:
    """The tools a new agent gets: those of its type that are here, then those that were asked for."""
    base = () if body.include_base_tools is False else BASE_TOOLS[body.agent_type]
    names = dict.fromkeys(name for name in base if tx.tools.find_by_name(name) is not None)
    names |= dict.fromkeys(body.tools or ())
    names |= dict.fromkeys(tx.tools.get(tool_id).spec.name for tool_id in body.tool_ids or ())
    return tuple(names)


def _set_tools(tx: Tx, agent_id: AgentId, tool_ids: Sequence[ToolId]) -> None:
    wanted = {tx.tools.get(tool_id).spec.name for tool_id in tool_ids}
    had = {tool.spec.name for tool in tx.tools.of_agent(agent_id)}
    for name in sorted(had - wanted):
        tx.tools.detach(agent_id, name)
    tx.tools.attach(agent_id, *sorted(wanted - had))


def _set_blocks(tx: Tx, agent_id: AgentId, block_ids: Sequence[BlockId]) -> None:
    wanted = {*block_ids}
    for block in tx.blocks.of_agent(agent_id):
        if block.id not in wanted:
            tx.blocks.detach(agent_id, block.id)
    tx.blocks.attach(agent_id, *block_ids)


def _drafts(library: AsyncPerdure, messages: Sequence[InitialMessage]) -> list[tuple[Draft, int]]:
    """Messages that an agent begins with, and their tokens. Raises: EmptyMessage, MessageTooLarge, NotSupported."""
    ports = library.app.ports
    drafts: list[tuple[Draft, int]] = []
    limit, size = ports.settings.message_limit_chars, 0
    for message in messages:
        text = message.text
        if not text.strip():
            raise EmptyMessage
        size += len(text)
        if size > limit:
            raise MessageTooLarge(size=size, limit=limit)
        draft = Draft(
            id=MessageId(ports.ids.new("message")),
            role=message.role,
            parts=(Text(text),),
            name=message.name,
            otid=message.otid,
            sender_id=message.sender_id,
        )
        drafts.append((draft, input_tokens(draft.role, text, ports.counter)))
    return drafts


def _any_name(randomness: Randomness) -> str:
    def one_of(words: Sequence[str]) -> str:
        return words[int(randomness.random() * len(words))]

    return one_of(_ADJECTIVES) + one_of(_NOUNS)
