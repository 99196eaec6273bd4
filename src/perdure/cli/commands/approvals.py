"""`perdure approvals`, `approve`, `deny` and `cancel`: the calls of agents that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence

from perdure.cli.chat.session import Session
from perdure.cli.chat.source import ListedLines
from perdure.cli.open_store import Output, with_store
from perdure.cli.views.pending import pending_shape, pending_text
from perdure.core.answers import PendingCall
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

NO_CALL = "no call waits for anybody"

Waiting = tuple[str, PendingCall]
"""(name of the agent, call)"""


async def approvals(*, as_json: bool) -> int:
    """Print the waiting calls of all agents."""
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        waiting = await perdure.services.approvals.list_all()
        if as_json:
            output.json([{"agent": name, **pending_shape(call)} for name, call in waiting])
            return 0
        for name, call in waiting:
            output.print(f"{name}: {pending_text(call)}{_place(call, waiting)}")
        hint = "`perdure approve AGENT` lets them run, `perdure deny AGENT` refuses them"
        output.view.hint(hint if waiting else NO_CALL)
        return 0

    return await with_store(output, work, empty=NO_CALL)


def _place(call: PendingCall, waiting: Sequence[Waiting]) -> str:
    """` in <conversation>` if calls of the same agent wait in several conversations, else nothing."""
    conversations = {other.conversation_id for _, other in waiting if other.agent_id == call.agent_id}
    return f" in {call.conversation_id}" if len(conversations) > 1 else ""


async def decide(
    name: str,
    call_id: str | None,
    *,
    approve: bool,
    reason: str | None,
    arguments: str | None,
    conversation: str | None,
) -> int:
    """Approve or deny waiting calls of an agent, print the run that follows, and return the exit code."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        agent = await perdure.agent(name)
        conversation_id = await _conversation_of(agent, perdure, call_id, conversation)
        session = Session(perdure, agent, ListedLines([]), output.view, conversation=conversation_id)
        return await session.run_decision(approve, call_id, reason=reason, arguments=_check_arguments(arguments))

    return await with_store(output, work, empty=NO_CALL)


async def cancel(name: str, *, conversation: str | None) -> int:
    """Cancel the runs of an agent that are queued, running, or stopped at a waiting call."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        agent = await perdure.agent(name)
        runs = await perdure.services.runs.cancel_all(
            agent.id,
            conversation=None if conversation is None else _conversation_id(conversation),
            whole_agent=conversation is None,
        )
        for run in runs:
            output.print(f"{run.id}: {'cancelled' if run.ended else 'asked to stop'}")
        if not runs:
            output.view.hint("there is nothing to cancel")
        return 0

    return await with_store(output, work, empty="there is nothing to cancel")


def _conversation_id(option: str) -> ConversationId | None:
    """The conversation that --conversation names; None: the agent's first."""
    return None if option == "default" else ConversationId(option)


async def _conversation_of(
    agent: AsyncAgent, perdure: AsyncPerdure, call_id: str | None, option: str | None
) -> ConversationId | None:
    """The conversation that the option names, else the one where the call waits or was decided; None: the first."""
    if option is not None:
        return _conversation_id(option)
    ids = {
        call.conversation_id: None
        for _, call in await perdure.services.approvals.list_all()
        if call.agent_id == agent.id and (call.call_id == call_id or (call_id is None and not call.awaits_client))
    }
    if len(ids) > 1:
        raise InvalidInput(
            f"such calls of agent {agent.name!r} wait in several conversations: name one with"
            f" --conversation ({', '.join(ids)})"
        )
    if not ids and call_id is not None:
        decided = await perdure.services.approvals.find_decided(agent.id, call_id)
        return decided[0] if len(decided) == 1 else None
    return next(iter(ids), None)


def _check_arguments(arguments: str | None) -> str | None:
    """The arguments as they are. Raises: InvalidInput: they are no JSON object."""
    if arguments is None:
        return None
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--arguments is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"--arguments is {arguments:.80}: give a JSON object")
    return arguments
