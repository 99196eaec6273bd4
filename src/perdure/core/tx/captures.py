"""`tx.captures`: how far conversations were stored as passages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perdure.core.ids import AgentId

__all__ = ["Captures", "Waiting"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a conversation holds that was not captured: how many tokens, and the number of its last row; -1: none."""

    tokens: int
    upto_seq: int


class Captures(Protocol):
    def upto(self, agent_id: AgentId, conversation_seq: int) -> int:
        """The number of the last row that was captured, or looked at and left out; -1: none was."""
        ...

    def put(self, agent_id: AgentId, conversation_seq: int, upto_seq: int, *, at: datetime) -> None:
        """From now on `upto` is this. Raises: NotFound: no such agent."""
        ...

    def waiting(self, agent_id: AgentId, conversation_seq: int, *, before_seq: int | None = None) -> Waiting:
        """What users and assistants said after `upto` and, if it is given, before `before_seq`; what was removed is
        left out."""
        ...
