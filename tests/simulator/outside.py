"""What is done to the store of a history from outside its loop, and what is read there at the end."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from perdure.core.blocks import Author
from perdure.core.errors import BlockLimitExceeded
from perdure.core.events import RunCancelRequested
from perdure.core.ids import AgentId, ConversationId
from perdure.core.runs import RunKey
from perdure.domain.agents.units import AgentChanges, update_agent
from perdure.domain.blocks.units import edit_block
from perdure.storage.tx import Tx

OUTSIDE = Author(kind="user", id="outside")
ELSEWHERE = "process-elsewhere"


async def no_fault(point: str) -> None:
    """No fault."""


def add_conversation(tx: Tx, agent_id: AgentId, conversation_id: ConversationId, *, at: datetime) -> None:
    tx.conversations.add(agent_id, conversation_id, at=at)


def edit(tx: Tx, agent_id: AgentId, text: str, *, at: datetime) -> None:
    with contextlib.suppress(BlockLimitExceeded):
        edit_block(tx, agent_id, "outside", lambda block: replace(block, value=text), author=OUTSIDE, at=at)


def change_agent(tx: Tx, agent_id: AgentId, *, at: datetime) -> None:
    """Its settings have another revision afterwards."""
    changes = AgentChanges(system=f"You are simulated, as of {at.isoformat()}.")
    update_agent(tx, agent_id, changes, author=OUTSIDE, at=at)


def stop_runs(tx: Tx, agent_id: AgentId, *, at: datetime) -> None:
    """As another program does it that works on the file."""
    for key in unended(tx, agent_id):
        if tx.runs.request_cancel(key):
            tx.events.add(key, [RunCancelRequested(tx.runs.get_by_key(key).id)], at=at)


def take_runs(tx: Tx, agent_id: AgentId, *, at: datetime, owner: str) -> None:
    """Claim the runs that `owner` works on for another process, which says no more: its lease ends in a second."""
    for run in tx.runs.list_oldest(limit=1_000):
        if run.key.agent_id == agent_id and run.status == "running" and run.lease_owner == owner:
            tx.runs.claim(run.key, owner=ELSEWHERE, at=at, until=at + timedelta(seconds=1), dead_owner=owner)


def last_message(tx: Tx, agent_id: AgentId, line: int) -> Any:
    return tx.messages.list(agent_id, conversation_seq=line, limit=1, newest_first=True)[0]


def unended(tx: Tx, agent_id: AgentId) -> list[RunKey]:
    return [run.key for run in tx.runs.list(agent_id, limit=1000) if not run.ended]
