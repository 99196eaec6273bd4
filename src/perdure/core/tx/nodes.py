"""`tx.nodes`: the verbs of summary nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.core.ids import AgentId
from perdure.core.nodes import SummaryNode

__all__ = ["Nodes"]


class Nodes(Protocol):
    def add(self, node: SummaryNode) -> SummaryNode:
        """The node with its number in the conversation. Raises: NotFound: no such agent."""
        ...

    def get(self, agent_id: AgentId, conversation_seq: int, seq: int) -> SummaryNode:
        """Raises: NotFound."""
        ...

    def by_seqs(self, agent_id: AgentId, conversation_seq: int, seqs: Sequence[int]) -> Sequence[SummaryNode]:
        """Those that there are, in the order of `seqs`."""
        ...

    def list(
        self,
        agent_id: AgentId,
        conversation_seq: int,
        *,
        limit: int = 100,
        after_seq: int = -1,
        from_message_seq: int = 0,
    ) -> Sequence[SummaryNode]:
        """In order of their numbers; only those of messages from this one on."""
        ...
