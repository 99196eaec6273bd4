"""What an agent's memory came from; forgetting, taking back and undoing; where memories and answers come from.

These routes are not part of Letta's API.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from perdure.core.forgetting.origins import origin_shape
from perdure.features.origins import wire as sources
from perdure.library.parts.checks import LIMIT_MAX
from perdure.server.wire.fields import AgentIdIn, ConversationIdIn
from perdure.server.wire.http import Json, Library, Router, ThisAgent, json_answer

router = Router()

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]


@router.get("/v1/agents/{agent_id}/memory-sources", tags=["agents"])
async def list_sources(agent: ThisAgent, limit: Limit = 100) -> list[sources.SourceShape]:
    """List what the agent's memory came from, the source with the newest write first."""
    return [sources.SourceShape.make(source) for source in await agent.sources.list(limit=limit)]


@router.get("/v1/agents/{agent_id}/memory-sources/writes", tags=["agents"])
async def list_source_writes(
    agent: ThisAgent,
    source: Annotated[
        str,
        Query(
            description="As in the list, such as `web:https://example.com`, or the id of a run.",
            max_length=sources.SOURCE_CHARS,
            json_schema_extra={"pattern": sources.SOURCE},
        ),
    ],
    limit: Limit = 100,
) -> list[sources.WriteShape]:
    """List the blocks, passages and facts that came from one source, or were written in one run, newest first."""
    return [sources.WriteShape.make(one) for one in await agent.sources.show(source, limit=limit)]


@router.post("/v1/agents/{agent_id}/memory-sources/revert", tags=["agents"])
async def revert_source(agent: ThisAgent, body: sources.RevertIn) -> sources.RevertShape:
    """Undo all that came from a source or run; later edits are merged, or named as a conflict."""
    return sources.RevertShape.make(await agent.sources.revert(body.source, dry_run=body.dry_run))


@router.post("/v1/agents/{agent_id}/memory-sources/revert-writes", tags=["agents"])
async def revert_writes(agent: ThisAgent, body: sources.RevertWritesIn) -> sources.RevertShape:
    """Undo some writes to memory, given by their ids; with `dry_run` only return what would be undone."""
    result = await agent.sources.revert_writes(body.writes, dry_run=body.dry_run)
    return sources.RevertShape.make(result)


@router.post("/v1/agents/{agent_id}/mentions", tags=["agents"])
async def find_mentions(agent: ThisAgent, body: sources.MentionsIn) -> sources.WireMentions:
    """Find where a text stands in memory and history, old versions and recorded requests. Nothing is changed."""
    return sources.WireMentions.make(await agent.find_mentions(body.text))


@router.post("/v1/agents/{agent_id}/forget", tags=["agents"])
async def forget(agent: ThisAgent, body: sources.ForgetIn) -> sources.Forgotten:
    """Take a text out of what the agent sees and finds, or with `erase` out of the store's file."""
    return sources.Forgotten.make(await agent.forget(body.text, erase=body.erase))


@router.get("/v1/agents/{agent_id}/corrections", tags=["agents"])
async def list_corrections(
    agent: ThisAgent, limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 20
) -> list[sources.CorrectionShape]:
    """List what was corrected or forgotten, the newest first."""
    return [sources.CorrectionShape.make(correction) for correction in await agent.corrections(limit=limit)]


@router.post("/v1/agents/{agent_id}/undo", tags=["agents"])
async def undo(agent: ThisAgent, body: sources.UndoIn) -> sources.Undone:
    """Undo a correction, by default the last. What was changed again since stays as it is."""
    return sources.Undone.make(await agent.undo(body.number))


@router.get("/v1/why", tags=["why"])
async def why(
    library: Library,
    of: Annotated[
        str,
        Query(
            description="An id of a run, step, message, passage, block or fact, or its beginning; with `agent_id`"
            " also the handle of a summary, or words that only one memory holds.",
            max_length=1_000,
        ),
    ],
    agent_id: AgentIdIn | None = None,
    conversation_id: Annotated[ConversationIdIn | None, Query(description="Whose summaries a handle names.")] = None,
) -> Json[sources.MemoryOriginShape | sources.FactOriginShape | sources.AnswerOriginShape]:
    """Tell who wrote a memory, when and in answer to what, or what was in the request behind an answer."""
    return json_answer(origin_shape(await library.agent_of(agent_id).why(of, conversation=conversation_id)))
