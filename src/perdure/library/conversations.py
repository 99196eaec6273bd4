"""The conversations of an agent: several lines of messages over the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from perdure.app import App
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation, Reset
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId
from perdure.domain.conversations.units import ConversationChanges, check_summary, update_conversation
from perdure.engine.conversations.reset import delete_conversation, reset_conversations
from perdure.library.checks import USER, check_limit, check_number, check_text
from perdure.storage.tx import Tx

__all__ = ["AsyncConversations", "own_conversation"]


class AsyncConversations:
    """The conversations of an agent; `AsyncAgent` has these methods."""

    _app: App
    info: Agent
    id: AgentId

    async def new_conversation(self, *, summary: str | None = None) -> Conversation:
        """A new line of messages over the same memory; `summary` says what it is about. Raises: InvalidInput."""
        summary = check_summary(summary)
        ports = self._app.ports
        conversation_id = ConversationId(ports.ids.new("conversation"))
        now = ports.clock.now()
        return await ports.store.write(
            lambda tx: tx.conversations.add(self.id, conversation_id, at=now, summary=summary)
        )

    async def conversations(self, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]:
        """Oldest first. Raises: InvalidInput: a limit below 1 or above 10,000."""
        check_limit(limit)
        check_number("after_seq", after_seq)
        return await self._app.store.read(lambda tx: tx.conversations.list(self.id, limit=limit, after_seq=after_seq))

    async def find_conversation(self, conversation: ConversationId | None = None) -> Conversation:
        """A conversation of this agent; by default its first. Raises: InvalidInput; NotFound, also for another
        agent's."""

        def find(tx: Tx) -> Conversation:
            if conversation is None:
                return tx.conversations.at(self.id, 0)
            return own_conversation(tx, self.info, conversation)

        return await self._app.store.read(find)

    async def update_conversation(
        self, conversation: ConversationId, **changes: Unpack[ConversationChanges]
    ) -> Conversation:
        """The conversation as changed. What is not given stays: `summary`, what it is about, in at most 20,000
        characters; `archived`: it takes messages either way, but a chat does not go on with it by itself.

        Raises: InvalidInput: a value that can't be used, no such field; NotFound, also for another agent's.
        """
        now = self._app.ports.clock.now()

        def update(tx: Tx) -> Conversation:
            own_conversation(tx, self.info, conversation)
            return update_conversation(tx, conversation, changes, at=now)

        return await self._app.store.write(update)

    async def delete_conversation(self, conversation: ConversationId) -> None:
        """Take a conversation, and what was said in it, out of every list, search and view; its rows stay in the log
        until the agent is deleted.

        Raises: NotFound, also for another agent's; InvalidInput: it is the agent's first, which can be `reset`;
        ConversationBusy: a run has not ended.
        """
        line = await self.find_conversation(conversation)
        await delete_conversation(line.id, self._app.ports, author=USER)

    async def reset(self, *, conversation: ConversationId | None = None) -> Sequence[Reset]:
        """Have a conversation begin anew, or all of them: what was said is out of view, for the model, in lists and in
        searches. Blocks, archives and files stay; so does the history, in the log (`messages(reset=True)`). Calls that
        wait for an answer are given up. One `Reset` of each conversation in which anything was said.

        Raises: InvalidInput, NotFound; ConversationBusy: a run has not ended; nothing is changed.
        """
        seq = None if conversation is None else (await self.find_conversation(conversation)).seq
        return await reset_conversations(self.id, seq, self._app.ports, author=USER)

    async def resets(self, *, conversation: ConversationId | None = None, limit: int = 100) -> Sequence[Reset]:
        """When a conversation began anew, or each of them; newest first. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        seq = None if conversation is None else (await self.find_conversation(conversation)).seq
        return await self._app.store.read(lambda tx: tx.resets.list(self.id, conversation_seq=seq, limit=limit))


def own_conversation(tx: Tx, agent: Agent, conversation_id: ConversationId) -> Conversation:
    """The agent's own conversation of this id. Raises: InvalidInput; NotFound, also for another agent's."""
    check_text("conversation", conversation_id)
    conversation = tx.conversations.get(conversation_id)
    if conversation.agent_id != agent.id:
        raise NotFound("conversation", conversation_id, hint=f"agent {agent.name!r} has no such conversation")
    return conversation
