"""Messages between agents come to an end: nobody waits in a circle, and one run leads to a limited number of others."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.core.errors import CircularWait, NotFound, TooManyMessages
from perdure.core.ids import AgentId, RunId
from perdure.core.runs import Run, RunFilter
from perdure.storage.tx import Tx

_UNENDED_MAX = 1_000
"""The unended runs of one conversation that are looked at."""

MESSAGES_MAX = 1_000
"""How many runs of messages between agents may go back to one run. Agents that each write to many others would else
begin more with every hop."""


def check_origin(tx: Tx, origin: RunId) -> None:
    """Check that one more message may come of a run. Raises: TooManyMessages."""
    if tx.runs.count_by_origin(origin) >= MESSAGES_MAX:
        raise TooManyMessages(origin, MESSAGES_MAX)


def check_wait(tx: Tx, caller: RunId, target: AgentId, conversation_seq: int) -> None:
    """Check that a run may wait for a new run of a conversation: the conversation must not wait for the run's own.

    The target is locked already. With the caller's agent locked too, of two agents that begin to wait for each other at
    the same time the second one is refused: one run of a conversation goes on at a time, so neither would end.

    Raises: CircularWait.
    """
    run = tx.runs.get(caller)
    tx.agents.lock(run.key.agent_id)
    end, seen = (target, conversation_seq), set[tuple[AgentId, int]]()
    ahead = [(run.key.agent_id, run.conversation_seq)]
    while ahead:
        line = ahead.pop()
        if line == end:
            raise CircularWait(target)
        if line not in seen:
            seen.add(line)
            ahead += [(one.key.agent_id, one.conversation_seq) for one in _waiting_for(tx, *line)]


def _waiting_for(tx: Tx, agent_id: AgentId, conversation_seq: int) -> Iterator[Run]:
    """The unended runs that wait for a run of this conversation."""
    where = RunFilter(agent_ids=(agent_id,), conversation_seq=conversation_seq, statuses=("queued", "running"))
    for run in tx.runs.page(where, limit=_UNENDED_MAX):
        if run.options.caller is None:
            continue
        try:
            caller = tx.runs.get(run.options.caller)
        except NotFound:  # it was deleted with its agent
            continue
        if not caller.ended:
            yield caller
