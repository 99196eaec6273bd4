"""Agent files: an agent with all that is its own as one JSON document, and agents made from one."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

from fastapi import Query, Request, Response
from starlette.responses import PlainTextResponse

from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, ConversationId
from perdure.features.agent_files.exporting import export_text
from perdure.features.agent_files.importing import Import, ImportOptions
from perdure.features.agent_files.reading import read_agent_file
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.answers import ImportedAgents
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import AgentIdIn, ConversationOrDefault, Items, Name
from perdure.server.wire.http import Library, Router, form_with_file

log = logging.getLogger(__name__)

router = Router(tags=["agents"])


_EXAMPLE = {"text/plain": {"example": '{"agents": [...], "blocks": [...], "tools": [...], ...}'}}


class FileSkillIn(WireRequest):
    """A skill of the client: its files, by their paths, or where it comes from."""

    name: Name
    files: dict[str, str] | None = None
    source_url: str | None = None


class ExportIn(WireRequest):
    """What an agent file has besides the agent, and which of its messages."""

    skills: Items[FileSkillIn] | None = None
    conversation_id: ConversationOrDefault | None = None
    scrub_messages: bool = False


@router.get("/v1/agents/{agent_id}/export", response_class=PlainTextResponse, responses={200: {"content": _EXAMPLE}})
async def export_agent(
    agent_id: AgentIdIn,
    library: Library,
    conversation_id: Annotated[ConversationOrDefault | None, Query(description="Have only this conversation.")] = None,
    scrub_messages: Annotated[bool, Query(description="Leave the messages out.")] = False,
    use_legacy_format: bool = False,
    max_steps: Annotated[int | None, Query(deprecated=True)] = None,
) -> Response:
    """Write an agent file: the agent with its blocks, tools, messages, and folders with the texts of their files.

    What only Perdure reads stands in `metadata.perdure`, such as other conversations, facts, passages and schedules.
    Values of secrets are not in it. It is sent as a text, which the clients return as they get it.
    """
    if use_legacy_format:
        raise InvalidInput("use_legacy_format: this server writes the second layout only; leave it out")
    return await _download(library, agent_id, ExportIn(conversation_id=conversation_id, scrub_messages=scrub_messages))


@router.post("/v1/agents/{agent_id}/export", response_class=PlainTextResponse, responses={200: {"content": _EXAMPLE}})
async def export_agent_with_skills(agent_id: AgentIdIn, library: Library, body: ExportIn | None = None) -> Response:
    """Write an agent file that has the client's skills beside the agent."""
    return await _download(library, agent_id, body or ExportIn())


async def _download(library: AsyncPerdure, agent_id: AgentId, body: ExportIn) -> Response:
    """Answer with an agent's file, as a text. Raises: NotFound."""
    chosen = None if body.conversation_id in (None, "default") else ConversationId(str(body.conversation_id))
    skills = [skill.model_dump() for skill in body.skills or ()]
    text = await export_text(
        library, agent_id, conversation=chosen, with_messages=not body.scrub_messages, skills=skills
    )
    return PlainTextResponse(text)


@router.post("/v1/agents/import")
async def import_agents(library: Library, request: Request) -> ImportedAgents:
    """Make the agents of an agent file, sent as a form, and return their ids.

    A model that this server lacks is replaced by its default one; tools that it lacks are left out. `warnings` says so.
    """
    async with form_with_file(request) as (form, part):
        options = ImportOptions.of(form)
        file = await asyncio.to_thread(read_agent_file, await part.read())
    work = Import(library, file, options)
    agent_ids = await work.run()
    for warning in work.warnings:
        log.warning("import of an agent file: %s", warning)
    return {"agent_ids": [*agent_ids], "warnings": work.warnings}
