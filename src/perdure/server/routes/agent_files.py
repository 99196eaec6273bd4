"""Agent files: an agent with its blocks, tools and messages as one JSON document, and agents made from one."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.responses import PlainTextResponse

from perdure.core.errors import AlreadyExists, InvalidInput, ModelNotFound, NotFound, PerdureError, ToolBuiltIn
from perdure.core.ids import AgentId, BlockId, ConversationId, ToolId
from perdure.core.messages import Message
from perdure.library.perdure import AsyncPerdure
from perdure.server.http import Library, json_answer
from perdure.server.routes.agents import agent_reply
from perdure.server.wire.agent_files import (
    NOT_OF_A_BODY,
    AgentFile,
    messages_in,
    read_agent_file,
    write_agent_file,
)
from perdure.server.wire.agents import AgentIn
from perdure.server.wire.base import WIRE_AUTHOR
from perdure.server.wire.fields import AgentIdIn, ConversationOrDefault
from perdure.server.wire.tools import ToolIn

log = logging.getLogger(__name__)

router = APIRouter(tags=["agents"])

_PAGE = 500
_NAME_MAX = 200
_NOT_IN_A_NAME = re.compile(r"[^\w '\-]")


@router.get("/v1/agents/{agent_id}/export", response_class=PlainTextResponse)
async def export_agent(
    agent_id: AgentIdIn,
    library: Library,
    conversation_id: Annotated[ConversationOrDefault | None, Query(description="Whose messages.")] = None,
    scrub_messages: Annotated[bool, Query(description="Leave the messages out.")] = False,
    use_legacy_format: bool = False,
    max_steps: Annotated[int | None, Query(deprecated=True)] = None,
) -> Response:
    """Write an agent file: the agent with its blocks, tools and messages. Values of secrets, passages of archives and
    files are not in it. It is sent as a text, which the clients return as they get it."""
    if use_legacy_format:
        raise InvalidInput("use_legacy_format: this server writes the second layout only; leave it out")
    state = await library.services.agents.get_state(agent_id)
    named = None if conversation_id in (None, "default") else ConversationId(str(conversation_id))
    messages = [] if scrub_messages else await _list_messages(library, agent_id, named)
    shown = frozenset(map(str, state.message_ids if named is None else [message.id for message in messages]))
    document = write_agent_file(agent_reply(library, state), messages, shown=shown, at=library.app.ports.clock.now())
    return PlainTextResponse(json.dumps(document, indent=2, ensure_ascii=False))


async def _list_messages(
    library: AsyncPerdure, agent_id: AgentId, conversation: ConversationId | None
) -> Sequence[Message]:
    """All messages of a conversation, by default the first, oldest first."""
    found: list[Message] = []
    conversation = conversation or (await library.services.conversations.get(agent_id, None)).id
    while True:
        page = await library.services.messages.list(
            agent_id,
            conversation=conversation,
            limit=_PAGE,
            before_seq=None,
            after_seq=found[-1].seq if found else None,
            newest_first=False,
            reset=False,
        )
        found += page
        if len(page) < _PAGE:
            return found


@router.post("/v1/agents/import")
async def import_agents(library: Library, request: Request) -> Response:
    """Make the agents of an agent file, sent as a form, and return their ids.

    A model that this server lacks is replaced by its default one; tools that it lacks are left out. `warnings` says so.
    """
    async with request.form(max_files=1, max_fields=20) as form:
        part = form.get("file")
        if not isinstance(part, UploadFile):
            error = {"type": "missing", "loc": ("body", "file"), "msg": "a file is needed, as multipart/form-data"}
            raise RequestValidationError([error])
        options = _Options.of(form)
        file = await asyncio.to_thread(read_agent_file, await part.read())
    imported = _Import(library, file, options)
    try:
        agent_ids = await imported.run()
    except BaseException:
        await imported.undo()
        raise
    for warning in imported.warnings:
        log.warning("import of an agent file: %s", warning)
    return json_answer({"agent_ids": agent_ids, "warnings": imported.warnings})


@dataclass(frozen=True, slots=True)
class _Options:
    """The fields of the form. Of two names of a field the newer one wins."""

    name: str | None = None
    model: str | None = None
    embedding: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    copy_suffix: bool = False
    override_tools: bool = False
    without_messages: bool = False

    @classmethod
    def of(cls, form: FormData) -> _Options:
        """Read the form. Raises: InvalidInput."""

        def text(*names: str) -> str | None:
            return next((value for name in names if isinstance(value := form.get(name), str) and value), None)

        def flag(name: str) -> bool:
            return (text(name) or "").lower() in ("true", "1", "yes")

        secrets = text("secrets", "env_vars_json") or "{}"
        try:
            values = json.loads(secrets)
        except ValueError as error:
            raise InvalidInput(f"secrets must be a JSON object of names and values: {error}") from error
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise InvalidInput("secrets must be a JSON object of names and values")
        return cls(
            name=text("name", "override_name"),
            model=text("model", "override_model_handle"),
            embedding=text("embedding", "override_embedding_handle"),
            secrets=values,
            copy_suffix=flag("append_copy_suffix"),
            override_tools=flag("override_existing_tools"),
            without_messages=flag("strip_messages"),
        )


class _Import:
    """One import: agents, with the blocks that they share made once."""

    def __init__(self, library: AsyncPerdure, file: AgentFile, options: _Options) -> None:
        self._library, self._file, self._options = library, file, options
        self._tools: dict[str, ToolId] = {}
        self._blocks: dict[str, BlockId] = {}
        self._made: list[AgentId] = []
        self.warnings: list[str] = [f"`{name}` of the file are not imported" for name in file.left_out]

    async def run(self) -> Sequence[AgentId]:
        """Make the tools, then the agents. Raises: PerdureError, RequestValidationError."""
        bodies = [(agent, self._body(agent), messages_in(agent)) for agent in self._file.agents.values()]
        for file_id in self._file.used("tool"):
            await self._import_tool(file_id, self._file.tools[file_id])
        for agent, body, messages in bodies:
            await self._import_agent(agent, body)
            if messages and not self._options.without_messages:
                await self._library.services.messages.import_messages(self._made[-1], messages, checked=True)
        return self._made

    async def undo(self) -> None:
        """Delete the agents that were made before one failed; tools stay, as others may have them."""
        for agent_id in self._made:
            try:
                await self._library.services.agents.delete(agent_id)
            except PerdureError:
                log.exception("%s is of an import that failed, and could not be deleted", agent_id)

    async def _import_tool(self, file_id: str, tool: Mapping[str, Any]) -> None:
        """Find or make a tool of the file; one that can't be had is left out."""
        tools, name = self._library.services.tools, str(tool.get("name") or "")
        try:
            if isinstance(tool.get("source_code"), str) and tool.get("tool_type", "custom") == "custom":
                new = ToolIn.model_validate(dict(tool))
                save = tools.upsert if self._options.override_tools else tools.create
                state = await save(new.new(), fields=new.set_fields)
            else:
                state = await tools.get(name)
        except (AlreadyExists, ToolBuiltIn):
            state = await tools.get(name)
            self.warnings.append(f"tool {name!r} was here already and stays as it is")
        except (NotFound, ValidationError) as error:
            reason = "this server has no such tool" if isinstance(error, NotFound) else str(error)
            self.warnings.append(f"tool {name!r:.80} is left out: {reason}")
            return
        except InvalidInput as error:
            self.warnings.append(f"tool {name!r:.80} is left out: {error}")
            return
        self._tools[file_id] = state.tool.id

    def _body(self, agent: Mapping[str, Any]) -> dict[str, Any]:
        """The body of a request that makes this agent, without what the store must give it."""
        options = self._options
        name = options.name or str(agent.get("name") or "Agent")
        name = _NOT_IN_A_NAME.sub("_", f"{name}_copy" if options.copy_suffix else name)[:_NAME_MAX]
        body = {key: value for key, value in agent.items() if key not in NOT_OF_A_BODY and value is not None}
        names = {str(self._file.tools[file_id].get("name")) for file_id in agent.get("tool_ids") or ()}
        rules = [rule for rule in body.get("tool_rules") or () if isinstance(rule, dict)]
        body |= {
            "name": name,
            "include_base_tools": False,
            "include_multi_agent_tools": False,
            "tool_rules": [rule for rule in rules if rule.get("tool_name") in names],
            "secrets": dict(options.secrets) or None,
        }
        if options.embedding:
            body["embedding"] = options.embedding
        return body

    async def _import_agent(self, agent: Mapping[str, Any], body: dict[str, Any]) -> None:
        """Make an agent with its blocks, and note which block is which."""
        agents, models = self._library.services.agents, self._library.services.models
        own = [id_ for id_ in agent.get("block_ids") or () if id_ not in self._blocks]
        body |= {
            "block_ids": [self._blocks[id_] for id_ in agent.get("block_ids") or () if id_ in self._blocks],
            "memory_blocks": [dict(self._file.blocks[id_]) for id_ in own],
            "tool_ids": [self._tools[id_] for id_ in agent.get("tool_ids") or () if id_ in self._tools],
        }
        gone = {str(self._file.tools[id_].get("name")) for id_ in agent.get("tool_ids") or () if id_ not in self._tools}
        body["tool_rules"] = [rule for rule in body["tool_rules"] if rule.get("tool_name") not in gone]
        if self._options.model:
            body["model"] = self._options.model
        try:
            request = AgentIn.model_validate(body)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            raise RequestValidationError([{**one, "loc": ("body", "file", *one["loc"])} for one in problems]) from error
        handle = request.model_handle
        try:
            model = await models.resolve(handle or self._library.app.choice.handle)
        except ModelNotFound:
            if self._options.model:
                raise
            self.warnings.append(f"agent {body['name']!r} follows the default model: {handle!r} is not here")
            handle, model = None, await models.resolve(self._library.app.choice.handle)
        made = await agents.create(
            request.new_agent(body["name"], model, follows_default=models.means_default(handle)),
            belongings=request.belongings,
            companion=request.companion(request.agent_type) or None,
            author=WIRE_AUTHOR,
        )
        self._made.append(made.id)
        by_label = {block.label: block.id for block in (await agents.get_state(made.id)).blocks}
        self._blocks |= {id_: by_label[str(self._file.blocks[id_].get("label"))] for id_ in own}
