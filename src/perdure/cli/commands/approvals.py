"""`perdure approval`: the calls of agents that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

from perdure.cli.run import Agent, argument, command, for_work, option

if for_work(__name__):
    from perdure.cli.chat.session import Session
    from perdure.cli.chat.source import ListedLines
    from perdure.cli.commands.conversations import conversation_named
    from perdure.cli.views.text import pending_shape, pending_text
    from perdure.cli.views.view import View
    from perdure.cli.work import named_agent, open_store
    from perdure.core.answers import PendingCall
    from perdure.core.errors import InvalidInput
    from perdure.core.ids import ConversationId
    from perdure.library.agent import AsyncAgent
    from perdure.library.perdure import AsyncPerdure

    AgentCall = tuple[str, PendingCall]
    """(name of the agent, call)"""

OfCall = Annotated[str | None, argument("By default all that wait.", "CALL")]
InConversation = Annotated[
    str | None, option("Number or id of the one where the call waits.", "NUMBER", name="--conversation")
]

NO_CALL = "no call waits for anybody"


@command("approval list")
async def list_approvals(view: View) -> None:
    """List the tool calls that wait for a person, or for the program that sent the message."""
    async with open_store(view, empty=NO_CALL) as perdure:
        waiting = await perdure.approvals.list_all()
        shapes = [{"agent": name, **pending_shape(call)} for name, call in waiting]
        view.show(shapes, *(f"{name}: {pending_text(call)}{_place(call, waiting)}" for name, call in waiting))
        hint = "`perdure approval approve AGENT` lets them run, `perdure approval deny AGENT` refuses them"
        view.hint(hint if waiting else NO_CALL)


def _place(call: PendingCall, waiting: Sequence[AgentCall]) -> str:
    """` in <conversation>` if calls of the same agent wait in several conversations, else nothing."""
    conversations = {other.conversation_id for _, other in waiting if other.agent_id == call.agent_id}
    return f" in {call.conversation_id}" if len(conversations) > 1 else ""


@command("approval approve", json=False)
async def approve(
    view: View,
    agent: Agent,
    call: OfCall = None,
    arguments: Annotated[str | None, option("Arguments in place of the model's.", "JSON")] = None,
    conversation: InConversation = None,
) -> int:
    """Approve waiting calls of an agent, and print its answer."""
    if arguments is not None:
        _check_arguments(arguments)
    return await _decide(view, agent, call, conversation, approve=True, arguments=arguments)


@command("approval deny", json=False)
async def deny(
    view: View,
    agent: Agent,
    call: OfCall = None,
    reason: Annotated[str | None, option("Sent to the agent.", "TEXT")] = None,
    conversation: InConversation = None,
) -> int:
    """Refuse waiting calls of an agent, and print its answer."""
    return await _decide(view, agent, call, conversation, approve=False, reason=reason)


async def _decide(
    view: View,
    name: str,
    call_id: str | None,
    conversation: str | None,
    *,
    approve: bool,
    reason: str | None = None,
    arguments: str | None = None,
) -> int:
    """Approve or deny waiting calls, print the run that follows, and return the exit code."""
    async with named_agent(view, name, change=True) as (perdure, agent):
        conversation_id = await _find_conversation(agent, perdure, call_id, conversation)
        session = Session(perdure, agent, ListedLines([]), view, conversation=conversation_id)
        return await session.run_decision(approve, call_id, reason=reason, arguments=arguments)


async def _find_conversation(
    agent: AsyncAgent, perdure: AsyncPerdure, call_id: str | None, option: str | None
) -> ConversationId | None:
    """The conversation that the option names, else the one where the call waits or was decided; None: the first."""
    if option is not None:
        return (await conversation_named(agent, option)).id
    ids = {
        call.conversation_id: None
        for _, call in await perdure.approvals.list_all()
        if call.agent_id == agent.id and (call.call_id == call_id or (call_id is None and not call.awaits_client))
    }
    if len(ids) > 1:
        raise InvalidInput(
            f"such calls of agent {agent.name!r} wait in several conversations: name one with"
            f" --conversation ({', '.join(ids)})"
        )
    if not ids and call_id is not None:
        conversations = await agent.find_decided(call_id)
        return conversations[0] if len(conversations) == 1 else None
    return next(iter(ids), None)


def _check_arguments(arguments: str) -> None:
    """Check the value of --arguments. Raises: InvalidInput: it is no JSON object."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--arguments is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"--arguments is {arguments:.80}: give a JSON object")
