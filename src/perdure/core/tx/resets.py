"""`tx.resets`: conversations that begin anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perdure.core.blocks import Author
from perdure.core.conversations import Conversation, Reset
from perdure.core.ids import AgentId

__all__ = ["Counted", "Resets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How many messages were in view before `next_seq`, by conversation: `said`. It is true of them for as long as the
    agent has the same settings revision, but for conversations that were reset since."""

    next_seq: int
    settings_revision: int
    said: Mapping[int, int]


class Resets(Protocol):
    def counted(self, agent_id: AgentId) -> Counted:
        """What `add` has to know, read beforehand: it takes a look at every message. Raises: NotFound."""
        ...

    def add(
        self, conversation: Conversation, *, author: Author, at: datetime, counted: Counted | None = None
    ) -> Reset | None:
        """Take every message of the conversation out of view: it is not shown, listed, counted or found any more, and
        the next request begins without it. The rows stay, and so does each past request. None: there is nothing to
        take. Whoever calls this holds the agent's lock, and no run of the conversation is on; and sees to it that it is
        carried out.

        Args:
            counted: then no more is counted than what was said since.
        Raises: NotFound.
        """
        ...

    def carry_out(self, agent_id: AgentId, *, limit: int = 500, chars: int = 250_000) -> bool:
        """Give up what is kept for up to `limit` messages, of about `chars` characters, that resets of the agent took
        out of view: their words in the index, their vectors. Whether some are left. Nobody sees a difference but in
        time and room."""
        ...

    def unfinished(self, *, limit: int = 100) -> Sequence[AgentId]:
        """The agents whose resets are not carried out yet."""
        ...

    def out_of_view(self, agent_id: AgentId) -> Mapping[int, int]:
        """Of resets that are not carried out yet: conversation -> the last message that is out of view."""
        ...

    def taken(self, agent_id: AgentId) -> Mapping[int, int]:
        """The same of all resets that the agent's conversations had."""
        ...

    def list(self, agent_id: AgentId, *, conversation_seq: int | None = None, limit: int = 100) -> Sequence[Reset]:
        """Newest first within each conversation, in order of conversations."""
        ...
