"""`tx.conversations`: the verbs of conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.agents import Agent
from perdure.core.conversations import Conversation, Opening
from perdure.core.ids import AgentId, ConversationId
from perdure.core.runs import Prefix

__all__ = ["Conversations"]


class Conversations(Protocol):
    def add(self, agent_id: AgentId, conversation_id: ConversationId, *, at: datetime) -> Conversation:
        """A new conversation; an agent's first one has number 0 and is its default."""
        ...

    def get(self, conversation_id: ConversationId) -> Conversation:
        """Raises: NotFound."""
        ...

    def at(self, agent_id: AgentId, seq: int) -> Conversation:
        """Raises: NotFound."""
        ...

    def opening(self, agent_id: AgentId, seq: int, *, known: Agent | None = None) -> Opening:
        """Who means to write by it holds the agent's lock (`Agents.lock`).

        Args:
            known: the agent as it was read earlier: what seldom changes is not read again unless it has.
        Raises: NotFound.
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
