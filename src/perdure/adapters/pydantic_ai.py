"""The message history of pydantic-ai's agents over a session of an archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.adapters.opening import in_store
from perdure.adapters.sessions import SessionAdapter, SessionItem

try:
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
except ImportError as error:
    raise ImportError("the history for pydantic-ai needs its messages: install pydantic-ai-slim") from error


class MessageHistory(SessionAdapter):
    """The messages of one session: `agent.run_sync(text, message_history=history.load())`, then
    `history.append(result.new_messages())`. Other processes see them at once. `SessionAdapter` says what it takes."""

    _archive = "pydantic-ai"

    @in_store
    async def load(self) -> list[ModelMessage]:
        """Return the messages, oldest first. In an event loop, call it by `asyncio.to_thread`."""
        return ModelMessagesTypeAdapter.validate_python(await self._store.load(self.session_id))

    @in_store
    async def append(self, messages: Sequence[ModelMessage]) -> None:
        """Append messages; up to 500, of 250,000 characters together, all or none. Raises: InvalidInput."""
        values = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        items = [SessionItem(value, "\n".join(_texts(one))) for value, one in zip(values, messages, strict=True)]
        await self._store.append(self.session_id, items)


def _texts(message: ModelMessage) -> Iterator[str]:
    """Yield the texts of a message's parts."""
    for part in message.parts:
        content: Any = getattr(part, "content", None)
        for one in [content] if isinstance(content, str) else content if isinstance(content, list | tuple) else ():
            if isinstance(one, str):
                yield one
