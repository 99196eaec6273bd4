"""`tx.resets`: conversations that begin anew."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.blocks import Author
from perdure.core.conversations import Conversation, Reset
from perdure.core.ids import AgentId

__all__ = ["Resets"]


class Resets(Protocol):
    def add(self, conversation: Conversation, *, author: Author, at: datetime) -> Reset | None:
        """Take every message of the conversation out of view: it is not shown, listed, counted or found any more, and
        the next request begins without it. The rows stay, and so does each past request. None: there is nothing to
        take. Whoever calls this holds the agent's lock, and no run of the conversation is on.

        Raises: NotFound.
        """
        ...

    def list(self, agent_id: AgentId, *, conversation_seq: int | None = None, limit: int = 100) -> Sequence[Reset]:
        """Newest first within each conversation, in order of conversations."""
        ...
