"""`perdure approvals`, `approve`, `deny` and `cancel`: the calls of agents that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence

from perdure.cli.chat.session import Session
from perdure.cli.chat.source import GivenLines
from perdure.cli.open_store import Shown, with_store
from perdure.cli.views.pending import pending_shape, told
from perdure.core.answers import PendingCall
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

__all__ = ["approvals", "cancel", "decide"]

NOTHING = "no call waits for anybody"

Waiting = tuple[str, PendingCall]
"""(name of the agent, call)"""


async def approvals(*, as_json: bool) -> int:
    """Print the calls that wait, of all agents."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        found = await perdure.services.approvals.list_all()
        if as_json:
            shown.json([{"agent": name, **pending_shape(call)} for name, call in found])
            return 0
        for name, call in found:
            shown.print(f"{name}: {told(call)}{_where(call, found)}")
        shown.view.hint(
            "`perdure approve AGENT` lets them run, `perdure deny AGENT` refuses them" if found else NOTHING
        )
        return 0

    return await with_store(shown, work, empty=NOTHING)


def _where(call: PendingCall, found: Sequence[Waiting]) -> str:
    """The conversation, where it has to be named to tell the call from others of its agent."""
    lines = {other.conversation_id for _, other in found if other.agent_id == call.agent_id}
    return f" in {call.conversation_id}" if len(lines) > 1 else ""


async def decide(
    name: str,
    call_id: str | None,
    *,
    approve: bool,
    reason: str | None,
    arguments: str | None,
    conversation: str | None,
) -> int:
    """Answer calls of an agent, and print what comes of it; the exit code."""
    shown = Shown(as_json=False)

    async def work(perdure: AsyncPerdure) -> int:
        agent = await perdure.agent(name)
        line = await _line_of(agent, perdure, call_id, conversation)
        session = Session(perdure, agent, GivenLines([]), shown.view, conversation=line)
        return await session.decided(approve, call_id, reason=reason, arguments=_checked(arguments))

    return await with_store(shown, work, empty=NOTHING)


async def cancel(name: str, *, conversation: str | None) -> int:
    """Cancel the runs of an agent that have not ended, or have stopped at calls which wait; these get no answer."""
    shown = Shown(as_json=False)

    async def work(perdure: AsyncPerdure) -> int:
        agent = await perdure.agent(name)
        runs = await perdure.services.runs.cancel_all(
            agent.id,
            conversation=None if conversation is None else _named(conversation),
            whole_agent=conversation is None,
        )
        for run in runs:
            shown.print(f"{run.id}: {'cancelled' if run.ended else 'asked to stop'}")
        if not runs:
            shown.view.hint("there is nothing to cancel")
        return 0

    return await with_store(shown, work, empty="there is nothing to cancel")


def _named(conversation: str) -> ConversationId | None:
    """The conversation that an option names; None: the agent's first."""
    return None if conversation == "default" else ConversationId(conversation)


async def _line_of(
    agent: AsyncAgent, perdure: AsyncPerdure, call_id: str | None, conversation: str | None
) -> ConversationId | None:
    """The conversation of the agent that is named, or else the one in which the call waits, or was decided; None: its
    first."""
    if conversation is not None:
        return _named(conversation)
    found = await perdure.services.approvals.list_all()
    lines = {
        call.conversation_id: None
        for _, call in found
        if call.agent_id == agent.id and (call.call_id == call_id or (call_id is None and not call.awaits_client))
    }
    if len(lines) > 1:
        raise InvalidInput(
            f"such calls of agent {agent.name!r} wait in several conversations: name one with"
            f" --conversation ({', '.join(lines)})"
        )
    if not lines and call_id is not None:
        decided = await perdure.services.approvals.find_decided(agent.id, call_id)
        return decided[0] if len(decided) == 1 else None
    return next(iter(lines), None)


def _checked(arguments: str | None) -> str | None:
    if arguments is None:
        return None
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--arguments is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"--arguments is {arguments:.80}: give a JSON object")
    return arguments
