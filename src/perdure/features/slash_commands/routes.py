"""The commands of an agent: listed, and run with or without waiting. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request

from perdure.core.ids import ConversationId
from perdure.engine.run.accept import Accepted
from perdure.features.slash_commands import wire
from perdure.library.agent import AsyncAgentById
from perdure.server.routes.messages import reply_answer
from perdure.server.wire.answers import WireReply
from perdure.server.wire.http import Json, Library, Router, ThisAgent, json_answer
from perdure.server.wire.messages import Display
from perdure.server.wire.runs import WireRun, letta_response

router = Router(tags=["commands"])

_Name = Annotated[str, Path(description="The command's exact name.", max_length=400)]


@router.get("/v1/agents/{agent_id}/commands")
async def list_commands(agent: ThisAgent) -> list[wire.CommandShape]:
    """List the commands that the agent's user can run, by name."""
    return [wire.CommandShape.make(command) for command in await agent.commands.list()]


@router.get("/v1/agents/{agent_id}/commands/{command_name}")
async def retrieve_command(agent: ThisAgent, command_name: _Name) -> wire.CommandShape:
    """Get a command."""
    return wire.CommandShape.make(await agent.commands.get(command_name))


@router.post("/v1/agents/{agent_id}/commands/{command_name}/run")
async def run_command(
    agent: ThisAgent, command_name: _Name, body: wire.CommandRunIn, library: Library, request: Request
) -> Json[WireReply]:
    """Run a command, and answer with the reply, as sending a message does."""
    accepted = await _submit(agent, command_name, body, background=False)
    replying = library.messages.reply_to(accepted)
    display = Display()
    return await reply_answer(
        request.app.state.streams, accepted, replying, lambda reply: letta_response(reply, display)
    )


@router.post("/v1/agents/{agent_id}/commands/{command_name}/run/async")
async def run_command_async(agent: ThisAgent, command_name: _Name, body: wire.CommandRunIn) -> Json[WireRun]:
    """Run a command in the background, and answer with its run."""
    accepted = await _submit(agent, command_name, body, background=True)
    more: dict[str, Any] = {} if accepted.run.ended else {"status": "created"}
    return json_answer(WireRun.make(accepted.run, **more))


async def _submit(agent: AsyncAgentById, name: str, body: wire.CommandRunIn, *, background: bool) -> Accepted:
    """Start the run of a command."""
    is_first = body.conversation_id in (None, "default")
    conversation = None if is_first else ConversationId(str(body.conversation_id))
    return await agent.commands.submit(
        name, body.arguments, conversation=conversation, background=background, max_steps=body.max_steps
    )
