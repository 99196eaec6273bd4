"""The conversations of an agent: several lines of messages over the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from perdure.core.agents import Agent
from perdure.core.conversations import Conversation, Reset
from perdure.core.ids import AgentId, ConversationId
from perdure.domain.conversations.units import ConversationChanges
from perdure.library.services import Services


class AsyncConversations:
    """The conversations of an agent; `AsyncAgent` has these methods."""

    _services: Services
    info: Agent
    id: AgentId

    async def new_conversation(self, *, summary: str | None = None) -> Conversation:
        """A new line of messages over the same memory; `summary` says what it is about. Raises: InvalidInput."""
        return await self._services.conversations.create(self.id, summary=summary)

    async def conversations(self, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]:
        """Oldest first. Raises: InvalidInput: a limit below 1 or above 10,000."""
        return await self._services.conversations.list_of_agent(self.id, limit=limit, after_seq=after_seq)

    async def find_conversation(self, conversation: ConversationId | None = None) -> Conversation:
        """A conversation of this agent; by default its first. Raises: InvalidInput; NotFound, also for another
        agent's."""
        return await self._services.conversations.get(self.id, conversation)

    async def update_conversation(
        self, conversation: ConversationId, **changes: Unpack[ConversationChanges]
    ) -> Conversation:
        """The conversation as changed. What is not given stays: `summary` and `description`, what it is about, in at
        most 20,000 characters each; `archived`: it takes messages either way, but a chat does not go on with it by
        itself.

        Raises: InvalidInput: a value that can't be used, no such field; NotFound, also for another agent's.
        """
        return (await self._services.conversations.update(self.id, conversation, changes)).conversation

    async def delete_conversation(self, conversation: ConversationId) -> None:
        """Take a conversation, and what was said in it, out of every list, search and view; its rows stay in the log
        until the agent is deleted.

        Raises: NotFound, also for another agent's; InvalidInput: it is the agent's first, which can be `reset`;
        ConversationBusy: a run has not ended.
        """
        await self._services.conversations.delete(self.id, conversation)

    async def reset(self, *, conversation: ConversationId | None = None) -> Sequence[Reset]:
        """Have a conversation begin anew, or all of them: what was said is out of view, for the model, in lists and in
        searches. Blocks, archives and files stay; so does the history, in the log (`messages(reset=True)`). Calls that
        wait for an answer are given up. One `Reset` of each conversation in which anything was said.

        Raises: InvalidInput, NotFound; ConversationBusy: a run has not ended; nothing is changed.
        """
        return await self._services.conversations.reset(self.id, conversation)

    async def resets(self, *, conversation: ConversationId | None = None, limit: int = 100) -> Sequence[Reset]:
        """When a conversation began anew, or each of them; newest first. Raises: InvalidInput, NotFound."""
        return await self._services.conversations.list_resets(self.id, conversation, limit=limit)
