"""LlamaIndex's chat store over the sessions of an archive, and its memory, which recalls what is out of the window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.adapters.opening import StoreOwner
from perdure.adapters.sessions import SessionArchive, SessionItem

try:
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.memory.types import BaseMemory
    from llama_index.core.storage.chat_store.base import BaseChatStore
except ImportError as error:
    raise ImportError("the memory for LlamaIndex needs its base classes: install llama-index-core") from error

RECENT = 20
"""How many of the newest messages `PerdureMemory` returns."""
RECALLED = 5
"""How many earlier messages it adds to them."""


class PerdureChatStore(BaseChatStore, StoreOwner[SessionArchive]):
    """The messages of sessions, each under a key. Other processes see them at once.

    Args:
        address: the store, as `Perdure` takes it: a file, `postgresql://...`, by default the user's own.
        archive: the name of the archive; it is created with the first call.
        options: as `Perdure` takes them.
    Raises: StoreError, InvalidInput.
    """

    address: str | None = None
    archive: str = "llama-index"
    _store: SessionArchive = PrivateAttr()

    def __init__(self, address: str | Path | None = None, *, archive: str = "llama-index", **options: Any) -> None:
        options.pop("class_name", None)  # LlamaIndex writes it down with the fields
        super().__init__(address=None if address is None else str(address), archive=archive)
        self._store = SessionArchive(address, archive=archive, **options)

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex writes the class down."""
        return "PerdureChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Put messages in the place of all that a key has. Raises: InvalidInput."""
        self._store.run(self._store.replace(key, [_item(message) for message in messages]))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages of a key, oldest first."""
        return _messages(self._store.run(self._store.load(key)))

    def newest_messages(self, key: str, limit: int) -> list[ChatMessage]:
        """Return the newest messages of a key, oldest of them first."""
        return _messages(self._store.run(self._store.load(key, limit=limit)))

    def search_messages(self, key: str, text: str, limit: int) -> list[ChatMessage]:
        """Return the messages of a key that match a text best, best first."""
        return _messages(self._store.run(self._store.search(key, text, limit=limit)))

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Add a message at the end. Raises: InvalidInput."""
        self._store.run(self._store.append(key, [_item(message)]))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Remove all messages of a key, and return them."""
        return _messages(self._store.run(self._store.replace(key, []))) or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at index `idx` and return it; None: there is no such message."""
        return None if idx < 0 else _message(self._store.run(self._store.remove(key, idx)))

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove the newest message, and return it; None: there is none."""
        return _message(self._store.run(self._store.remove(key, -1)))

    def get_keys(self) -> list[str]:
        """Return the keys that have messages, in order; at most 10,000."""
        return list(self._store.run(self._store.sessions()))


class PerdureMemory(BaseMemory):
    """A memory of one session: its newest messages, and before them those earlier ones that match the input best.

    Args:
        chat_store: keeps the messages; `key` is the session.
        recent: how many of the newest messages `get` returns.
        recalled: how many earlier ones it adds.
    """

    chat_store: PerdureChatStore
    key: str = "chat_history"
    recent: int = RECENT
    recalled: int = RECALLED

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex writes the class down."""
        return "PerdureMemory"

    @classmethod
    def from_defaults(cls, chat_store: PerdureChatStore | None = None, **fields: Any) -> PerdureMemory:
        """Make a memory; without a chat store over the user's own store."""
        return cls(chat_store=chat_store or PerdureChatStore(), **fields)

    def get(self, input: str | None = None, **_: Any) -> list[ChatMessage]:
        """Return what a model is to read: earlier messages that match the input, then the newest, in their order."""
        newest = self.chat_store.newest_messages(self.key, self.recent)
        is_whole = len(newest) < self.recent
        while newest and not is_whole and newest[0].role == MessageRole.TOOL:  # its call is out of the window
            newest = newest[1:]
        if not input or is_whole:
            return newest
        found = self.chat_store.search_messages(self.key, input, self.recent + self.recalled)
        shown = [_item(one).value for one in newest]
        said = [one for one in found if _is_said(one) and _item(one).value not in shown]
        return [*said[: self.recalled], *newest]

    def get_all(self) -> list[ChatMessage]:
        """Return all messages, oldest first."""
        return self.chat_store.get_messages(self.key)

    def put(self, message: ChatMessage) -> None:
        """Add a message at the end. Raises: InvalidInput."""
        self.chat_store.add_message(self.key, message)

    def set(self, messages: list[ChatMessage]) -> None:
        """Put messages in the place of all that there are. Raises: InvalidInput."""
        self.chat_store.set_messages(self.key, messages)

    def reset(self) -> None:
        """Remove all messages."""
        self.chat_store.delete_messages(self.key)


def _is_said(message: ChatMessage) -> bool:
    """Whether a message can stand alone: one of a user, or an answer without calls of tools."""
    is_answer = message.role == MessageRole.ASSISTANT and not message.additional_kwargs.get("tool_calls")
    return message.role == MessageRole.USER or (
        is_answer and not any(block.block_type == "tool_call" for block in message.blocks)
    )


def _item(message: ChatMessage) -> SessionItem:
    """Return a message as a session keeps it."""
    return SessionItem(message.model_dump(mode="json"), message.content or "")


def _message(value: Any) -> ChatMessage | None:
    return None if value is None else ChatMessage.model_validate(value)


def _messages(values: Sequence[Any]) -> list[ChatMessage]:
    return [ChatMessage.model_validate(value) for value in values]
