"""A group that begins anew: its transcript is empty, and so are the conversations in which its agents spoke."""

from __future__ import annotations

from perdure.core.blocks import Author
from perdure.core.errors import GroupBusy
from perdure.core.ids import AgentId, GroupId
from perdure.engine.conversations.reset import reset_conversations
from perdure.engine.ports import Ports
from perdure.storage.tx import Tx


async def reset_group(group_id: GroupId, ports: Ports, *, author: Author) -> None:
    """Empty the group's transcript and the conversations that its agents have for it; their other conversations stay.
    If it is interrupted, the next call goes on with it.

    Raises: NotFound, StoreError; GroupBusy, ConversationBusy: a turn, or the run of an agent, has not ended.
    """
    for agent_id, _, conversation_seq in await ports.store.read(_load_idle, group_id):
        if conversation_seq is not None:
            await reset_conversations(agent_id, conversation_seq, ports, author=author)
    await ports.store.write(_reset, group_id)


def _load_idle(tx: Tx, group_id: GroupId) -> list[tuple[AgentId, str, int | None]]:
    """The agents of a group in which no turn goes on. Raises: NotFound, GroupBusy."""
    tx.groups.get(group_id)
    if (turn := tx.group_turns.find_active(group_id)) is not None:
        raise GroupBusy(group_id, turn.seq)
    return list(tx.groups.members(group_id))


def _reset(tx: Tx, group_id: GroupId) -> None:
    tx.groups.lock(group_id)
    if (turn := tx.group_turns.find_active(group_id)) is not None:
        raise GroupBusy(group_id, turn.seq)
    tx.groups.reset(group_id)
