"""The conversations of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from perdure.core.blocks import Block
from perdure.core.conversations import CompactionSettings, Conversation, Reset
from perdure.core.ids import ConversationId, MessageId
from perdure.domain.conversations.units import ConversationChanges
from perdure.library.agent_base import AsyncAgentBase


class AsyncConversations(AsyncAgentBase):
    """The conversations of an agent; `AsyncAgent` has these methods."""

    async def new_conversation(
        self, *, summary: str | None = None, isolated_blocks: Sequence[str] = ()
    ) -> Conversation:
        """A new line of messages over the same memory; `summary` says what it is about.

        Args:
            isolated_blocks: labels of the agent's blocks; the conversation sees and edits copies of its own instead.
        Raises: InvalidInput, BlockNotFound.
        """
        made = await self._services.conversations.create(self.id, {"summary": summary}, isolated_labels=isolated_blocks)
        return made.conversation

    async def isolated_blocks(self, conversation: ConversationId) -> Sequence[Block]:
        """The blocks that a conversation has for itself, in the order of the agent's blocks. Raises: NotFound."""
        return await self._services.blocks.list_isolated(self.id, conversation)

    async def conversations(self, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]:
        """A page of the conversations, oldest first. Raises: InvalidInput: a limit below 1 or above 10,000."""
        return await self._services.conversations.list_of_agent(self.id, limit=limit, after_seq=after_seq)

    async def find_conversation(self, conversation: ConversationId | None = None) -> Conversation:
        """A conversation of this agent; by default its first. Raises: InvalidInput; NotFound, also for another
        agent's."""
        return await self._services.conversations.get(self.id, conversation)

    async def update_conversation(
        self, conversation: ConversationId, **changes: Unpack[ConversationChanges]
    ) -> Conversation:
        """Change fields of a conversation and return it.

        Args:
            changes: `summary` and `description`: what it is about, at most 20,000 characters each. `archived`: a chat
                does not continue it by itself; it still takes messages. `model`, `options` (by the names of an agent's
                settings) and `context_window_limit`: what it has in place of the agent's; None: the agent's.
                `model_settings`: the options as the server shows them. A missing field stays.
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

    async def fork_conversation(
        self,
        conversation: ConversationId | None = None,
        *,
        upto: MessageId | None = None,
        before: MessageId | None = None,
        hidden: bool = False,
    ) -> Conversation:
        """A new conversation with a copy of what another one (default: the agent's first) has in view, up to a message
        if one is given, or up to the one `before` it. A `hidden` one is in no list.

        Raises: InvalidInput: the message is not in its view; NotFound, also for another agent's.
        """
        forks = self._services.conversations
        made = await forks.fork(self.id, conversation, upto=upto, before=before, hidden=hidden)
        return made.conversation

    async def compact(
        self, *, conversation: ConversationId | None = None, settings: CompactionSettings | None = None
    ) -> str:
        """Take the oldest messages of a conversation (default: the agent's first) out of view, behind a summary, and
        return the summary. They stay in the log, and searches find them. A full window does that by itself. A field of
        `settings` wins over the agent's setting `compaction`.

        Raises: InvalidInput; NotFound; ConversationBusy: a run has not ended; ApprovalPending; ModelNotFound;
        LimitReached; NothingToCompact: no message is in view.
        """
        return (await self._services.conversations.compact(self.id, conversation, settings)).summary

    async def recompile(self, *, conversation: ConversationId | None = None, dry_run: bool = False) -> str:
        """The system prompt of a conversation (default: the agent's first), compiled with the memory of now, also for
        its next request; `dry_run` changes nothing. Edits of memory reach the model without it.

        Raises: InvalidInput; NotFound, also for another agent's.
        """
        return await self._services.conversations.recompile(self.id, conversation, dry_run=dry_run)

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
