"""LangChain's chat message history over a session of an archive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.adapters.sessions import SessionAdapter, SessionItem

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
except ImportError as error:
    raise ImportError("the history for LangChain needs its base class: install langchain-core") from error


class PerdureChatMessageHistory(SessionAdapter, BaseChatMessageHistory):
    """The messages of one session, unshortened; other processes see them at once. Arguments: see `SessionAdapter`."""

    _archive = "langchain"

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # there it is an attribute
        """The messages, oldest first."""
        return messages_from_dict(self._store.run(self._store.load(self.session_id)))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages; up to 500, of 250,000 characters together, all or none. Raises: InvalidInput."""
        items = [SessionItem(message_to_dict(message), str(message.text)) for message in messages]
        self._store.run(self._store.append(self.session_id, items))

    async def aget_messages(self) -> list[BaseMessage]:
        """As `messages`, in a thread: the store has an event loop of its own."""
        return await asyncio.to_thread(lambda: self.messages)
