"""An agent's conversations, with plain calls; every method is the asynchronous one's of `library.conversations`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from perdure.core.conversations import Conversation, Reset
from perdure.core.ids import ConversationId
from perdure.domain.conversations.units import ConversationChanges
from perdure.library.conversations import AsyncConversations
from perdure.library.portal import Portal

__all__ = ["Conversations"]


class Conversations:
    """The conversations of an agent; see `AsyncConversations`. `Agent` has these methods."""

    _portal: Portal
    _inner: AsyncConversations

    def new_conversation(self, *, summary: str | None = None) -> Conversation:
        """A new line of messages over the same memory."""
        return self._portal.run(self._inner.new_conversation(summary=summary))

    def conversations(self, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]:
        """Oldest first."""
        return self._portal.run(self._inner.conversations(limit=limit, after_seq=after_seq))

    def find_conversation(self, conversation: ConversationId | None = None) -> Conversation:
        """A conversation of this agent; by default its first."""
        return self._portal.run(self._inner.find_conversation(conversation))

    def update_conversation(self, conversation: ConversationId, **changes: Unpack[ConversationChanges]) -> Conversation:
        """The conversation as changed."""
        return self._portal.run(self._inner.update_conversation(conversation, **changes))

    def delete_conversation(self, conversation: ConversationId) -> None:
        """Take a conversation, and what was said in it, out of every list, search and view."""
        self._portal.run(self._inner.delete_conversation(conversation))

    def reset(self, *, conversation: ConversationId | None = None) -> Sequence[Reset]:
        """Have a conversation begin anew, or all of them."""
        return self._portal.run(self._inner.reset(conversation=conversation))

    def resets(self, *, conversation: ConversationId | None = None, limit: int = 100) -> Sequence[Reset]:
        """When a conversation began anew, or each of them."""
        return self._portal.run(self._inner.resets(conversation=conversation, limit=limit))
