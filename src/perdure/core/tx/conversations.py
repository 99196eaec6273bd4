"""`tx.conversations`: the verbs of conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from perdure.core.agents import Agent
from perdure.core.conversations import Conversation, Opening
from perdure.core.ids import AgentId, ConversationId, MessageId
from perdure.core.runs import Prefix

__all__ = ["ConversationFilter", "ConversationOrder", "Conversations"]

ConversationOrder = Literal["created", "last_message", "last_run"]
"""What conversations are sorted by; "last_run" is when a run of theirs has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFilter:
    """Which conversations: all conditions hold. `text` is a part of the summary, in any case."""

    agent_id: AgentId | None = None
    archived: bool | None = None
    text: str | None = None


class Conversations(Protocol):
    def add(
        self,
        agent_id: AgentId,
        conversation_id: ConversationId,
        *,
        at: datetime,
        summary: str | None = None,
        settings: Mapping[str, Any] | None = None,
        hidden: bool = False,
    ) -> Conversation:
        """A new conversation; an agent's first one has number 0 and is its default. A `hidden` one is in no page."""
        ...

    def get(self, conversation_id: ConversationId) -> Conversation:
        """Raises: NotFound: there is none, or it was removed."""
        ...

    def put(self, conversation: Conversation, *, at: datetime) -> Conversation:
        """Change summary, settings and whether it is archived. Raises: NotFound."""
        ...

    def remove(self, conversation: Conversation, *, at: datetime) -> None:
        """From now on it is neither got nor listed; its rows stay. Raises: NotFound."""
        ...

    def page(
        self,
        where: ConversationFilter,
        *,
        order: ConversationOrder = "created",
        ascending: bool = False,
        limit: int = 50,
        after: ConversationId | None = None,
    ) -> Sequence[Conversation]:
        """Conversations besides the agents' first ones; `after` is the last one of the page before."""
        ...

    def shown(self, agent_id: AgentId, seq: int, *, limit: int = 100) -> Sequence[MessageId]:
        """The newest messages that the conversation shows the model, oldest first, without the engine's own."""
        ...

    def at(self, agent_id: AgentId, seq: int) -> Conversation:
        """Raises: NotFound."""
        ...

    def opening(self, agent_id: AgentId, seq: int, *, known: Agent | None = None) -> Opening:
        """Who means to write by it holds the agent's lock (`Agents.lock`).

        Args:
            known: the agent as it was read earlier: what seldom changes is not read again unless it has.
        Raises: NotFound: also for a conversation that was removed.
        """
        ...

    def list(self, agent_id: AgentId, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]: ...

    def show(self, agent_id: AgentId, seq: int, seen: Mapping[str, int], *, prefix: Prefix | None = None) -> None:
        """Record which block versions the conversation's log now shows, and its new prefix if there is one.

        With a prefix, the tokens of the view are counted anew, over all the rows that follow it.
        """
        ...

    def wait(self, agent_id: AgentId, seq: int, *, run_seq: int | None, from_seq: int | None = None) -> None:
        """Record the run that stopped at calls which wait for somebody outside, and the message with them; None:
        nothing waits any more."""
        ...

    def waiting(self, agent_id: AgentId | None = None, *, limit: int = 100) -> Sequence[Conversation]:
        """Conversations with calls that wait, of one agent or of all; in order of agents and their numbers."""
        ...

    def fit(self, agent_id: AgentId, seq: int, *, view_tokens: int, stubs: Mapping[int, int], overcount: int) -> None:
        """Record how the rows in view are shown from now on, and the estimate of that."""
        ...
