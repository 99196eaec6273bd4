"""Units of work that several nouns share."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.messages import HISTORY_KINDS, Message
from perdure.core.runs import Run
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


def find_run(tx: Tx, run_id: RunId, agent_id: AgentId | None) -> Run:
    """The run of this id; of this agent, if one is given. Raises: InvalidInput; NotFound, also for another agent's."""
    check_text("run_id", run_id)
    run = tx.runs.get(run_id)
    if agent_id is not None and run.key.agent_id != agent_id:
        raise NotFound("run", run_id, hint=f"agent {tx.agents.get(agent_id).name!r} has no such run")
    return run


def list_run_messages(tx: Tx, run: Run) -> Sequence[Message]:
    """The messages of a run, those of the caller and those of a conversation that was reset included; none of a deleted
    conversation."""
    try:
        tx.conversations.get(run.conversation_id)
    except NotFound:
        return []
    return [
        message
        for message in tx.messages.list_by_run(run, reset=True)
        # A run that goes on with answered calls begins with the message of the run before.
        if message.kind in HISTORY_KINDS and message.run_seq == run.key.seq
    ]
