"""`tx.messages`: the verbs of the message log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perdure.core.blocks import Author
from perdure.core.conversations import Opening
from perdure.core.ids import AgentId, MessageId, StepId
from perdure.core.messages import Draft, Message, Part, Role
from perdure.core.runs import Run
from perdure.core.text.words import Query
from perdure.core.tx.found import Matches

__all__ = ["MessageFilter", "Messages", "Turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Which messages: all conditions hold. Times are of `occurred_at`, both ends included."""

    conversation_seq: int | None = None
    roles: tuple[Role, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    before_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What is known of something that was said, without its words: `occurred_at` in epoch seconds; `asks`: whether it
    holds a question."""

    seq: int
    conversation_seq: int
    role: Role
    name: str | None
    occurred_at: float
    chars: int
    asks: bool


class Messages(Protocol):
    def append(
        self,
        agent_id: AgentId,
        drafts: Sequence[Draft],
        *,
        conversation_seq: int,
        at: datetime,
        tokens: Sequence[int],
        run: Run | None = None,
        step_id: StepId | None = None,
        overcount: int | None = None,
        opening: Opening | None = None,
    ) -> Sequence[Message]:
        """The messages with their numbers, consecutive, at once searchable. Raises: NotFound: no such agent.

        Args:
            overcount: what the request before these messages taught of the conversation's estimate
                (`Conversation.overcount`); None: nothing.
            opening: what the `run` was added to in this transaction; it has taken the numbers for these messages,
                and they are found by their ids already.
        """
        ...

    def get(self, message_id: MessageId) -> Message:
        """Raises: NotFound."""
        ...

    def place(self, message_id: MessageId) -> tuple[AgentId, int]:
        """Whose message it is, and its number; also of one that is out of view. Raises: NotFound."""
        ...

    def known(self, ids: Sequence[MessageId]) -> set[MessageId]:
        """Those that are taken, also by messages that were removed from view."""
        ...

    def reset_among(self, ids: Sequence[MessageId]) -> set[MessageId]:
        """Those that a reset took out of view."""
        ...

    def list(
        self,
        agent_id: AgentId,
        *,
        conversation_seq: int | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int = 100,
        newest_first: bool = False,
        engine_kinds: bool = False,
        reset: bool = False,
    ) -> Sequence[Message]:
        """A page in order of `seq`; the engine's own messages are left out unless asked for, and so are those that a
        `reset` took out of view."""
        ...

    def view(
        self,
        agent_id: AgentId,
        conversation_seq: int,
        *,
        from_seq: int,
        upto_seq: int,
        settings_revision: int | None = None,
    ) -> Sequence[Message]:
        """Every row of a conversation in [from_seq, upto_seq], the engine's own included: what a model is shown. With a
        settings revision, as it was shown then, whatever was revised or removed since."""
        ...

    def of_run(self, run: Run, *, reset: bool = False) -> Sequence[Message]:
        """The run's input and everything that followed from it; what a `reset` took out of view is left out unless
        asked for."""
        ...

    def count(self, agent_id: AgentId) -> int:
        """How many messages the agent's history has, the engine's own left out."""
        ...

    def count_after(self, agent_id: AgentId, seq: int, *, conversation_seq: int | None = None) -> int:
        """How many of those that `list` gives have higher numbers."""
        ...

    def match(self, agent_id: AgentId, query: Query, *, where: MessageFilter, limit: int) -> Matches:
        """Candidates of a full-text search."""
        ...

    def next_seq(self, agent_id: AgentId) -> int:
        """The number that the agent's next message will get. Raises: NotFound."""
        ...

    def turns(self, agent_id: AgentId, *, from_seq: int, limit: int) -> Sequence[Turn]:
        """What users and assistants said from `from_seq` on, in order; rows without text are left out."""
        ...

    def texts(self, agent_id: AgentId, seqs: Sequence[int]) -> dict[int, str]:
        """Number -> text of those that were not removed."""
        ...

    def newest(self, agent_id: AgentId, *, where: MessageFilter, limit: int) -> Sequence[Message]: ...

    def by_seqs(self, agent_id: AgentId, seqs: Sequence[int]) -> Sequence[Message]: ...

    def revise(self, message_id: MessageId, parts: Sequence[Part] | None, *, author: Author, at: datetime) -> None:
        """Show other parts from now on, or None to remove from view; the row itself stays.

        Raises: NotFound; InvalidInput: a call or result would be torn from its other half.
        """
        ...
