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
from perdure.core.ids import AgentId, ConversationId
from perdure.core.runs import Run, RunFilter, RunKey
from perdure.engine.approvals.answers import pending_calls
from perdure.engine.approvals.decisions import find_decisions
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.storage.tx import Tx

__all__ = ["approvals", "cancel", "decide"]

NOTHING = "no call waits for anybody"
LISTED_MAX = 1_000

Waiting = tuple[str, PendingCall]
"""(name of the agent, call)"""


async def approvals(*, as_json: bool) -> int:
    """Print the calls that wait, of all agents."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        found = await perdure.app.store.read(_everything)
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
        line = None if conversation is None else (await agent.find_conversation(_named(conversation))).seq
        runs = await perdure.app.store.read(_unfinished, agent.id, line)
        for run in runs:
            run = await agent.cancel(run.id)
            shown.print(f"{run.id}: {'cancelled' if run.ended else 'asked to stop'}")
        if not runs:
            shown.view.hint("there is nothing to cancel")
        return 0

    return await with_store(shown, work, empty="there is nothing to cancel")


def _unfinished(tx: Tx, agent_id: AgentId, line: int | None) -> Sequence[Run]:
    """The runs of an agent that still have something to do, or to wait for."""
    stopped = [
        tx.runs.at(RunKey(agent_id, waiting.pending_run_seq))
        for waiting in tx.conversations.waiting(agent_id, limit=LISTED_MAX)
        if waiting.pending_run_seq is not None
    ]
    active = tx.runs.page(RunFilter(agent_ids=(agent_id,), statuses=("queued", "running")), limit=LISTED_MAX)
    return [run for run in (*active, *stopped) if line is None or run.conversation_seq == line]


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
    found = await perdure.app.store.read(_everything)
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
        decided = await perdure.app.store.read(_decided, agent.id, call_id)
        return decided[0] if len(decided) == 1 else None
    return next(iter(lines), None)


def _decided(tx: Tx, agent_id: AgentId, call_id: str) -> Sequence[ConversationId]:
    """The conversations of an agent in which a call of this id was decided."""
    lines = tx.conversations.list(agent_id, limit=LISTED_MAX)
    return [line.id for line in lines if find_decisions(tx, line, call_id)]


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


def _everything(tx: Tx) -> Sequence[Waiting]:
    """Of all agents."""
    return [
        (tx.agents.get(line.agent_id).name, call)
        for line in tx.conversations.waiting(limit=LISTED_MAX)
        for call in pending_calls(tx, line)
    ]
