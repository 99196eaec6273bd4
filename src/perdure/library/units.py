"""Units of work that several nouns share."""

from __future__ import annotations

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ConversationId
from perdure.library.checks import check_text
from perdure.storage.tx import Tx


def find_conversation(tx: Tx, agent_id: AgentId | None, conversation: ConversationId | None) -> Conversation:
    """The agent's conversation; without an agent, anybody's; without a conversation, the agent's first.

    Raises: InvalidInput; NotFound, also for another agent's.
    """
    if conversation is None:
        if agent_id is None:
            raise InvalidInput("agent_id: the conversation 'default' needs one")
        tx.agents.model(agent_id)
        return tx.conversations.get_by_seq(agent_id, 0)
    check_text("conversation", conversation)
    found = tx.conversations.get(conversation)
    if agent_id is not None and agent_id != found.agent_id:
        name = tx.agents.get(agent_id).name
        raise NotFound("conversation", conversation, hint=f"agent {name!r} has no such conversation")
    return found
