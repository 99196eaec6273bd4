"""`perdure approvals`, `perdure approve` and `perdure deny`: the calls of agents that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from perdure.cli.opened import Shown, with_store
from perdure.cli.pending_view import pending_shape, told
from perdure.cli.session import Session
from perdure.cli.source import GivenLines
from perdure.core.answers import PendingCall
from perdure.core.errors import InvalidInput
from perdure.core.tx import Tx
from perdure.engine.answers import pending_calls
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

__all__ = ["approvals", "decide"]

NOTHING = "no call waits for anybody"
LISTED_MAX = 1_000


async def approvals(*, as_json: bool) -> int:
    """Print the calls that wait, of all agents."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        found = await perdure.app.store.read(_everything)
        if as_json:
            shown.json([{"agent": name, **pending_shape(call)} for name, call in found])
            return 0
        for name, call in found:
            shown.print(f"{name}: {told(call)}")
        shown.view.hint(
            "`perdure approve AGENT` lets them run, `perdure deny AGENT` refuses them" if found else NOTHING
        )
        return 0

    return await with_store(shown, work, empty=NOTHING)


async def decide(name: str, call_id: str | None, *, approve: bool, reason: str | None, arguments: str | None) -> int:
    """Answer calls of an agent, and print what comes of it; the exit code."""
    shown = Shown(as_json=False)

    async def work(perdure: AsyncPerdure) -> int:
        agent = await perdure.agent(name)
        line = await _line_of(agent, perdure, call_id)
        session = Session(perdure, agent, GivenLines([]), shown.view, conversation=line)
        return await session.decided(approve, call_id, reason=reason, arguments=_checked(arguments))

    return await with_store(shown, work, empty=NOTHING)


async def _line_of(agent: AsyncAgent, perdure: AsyncPerdure, call_id: str | None) -> Any:
    """The conversation of the agent in which the call waits; None: its first."""
    found = await perdure.app.store.read(_everything)
    lines = [
        call.conversation_id
        for _, call in found
        if call.agent_id == agent.id and (call.call_id == call_id or (call_id is None and not call.awaits_client))
    ]
    if len(set(lines)) > 1:
        raise InvalidInput(f"calls of agent {agent.name!r} wait in several conversations: name one of them")
    return lines[0] if lines else None


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


def _everything(tx: Tx) -> Sequence[tuple[str, PendingCall]]:
    """(name of the agent, call), of all agents."""
    return [
        (tx.agents.get(line.agent_id).name, call)
        for line in tx.conversations.waiting(limit=LISTED_MAX)
        for call in pending_calls(tx, line)
    ]
