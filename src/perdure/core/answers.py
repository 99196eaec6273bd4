"""Calls that wait for somebody outside: for a person to approve them, or for the caller to run them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.ids import AgentId, ConversationId, MessageId, RunId
from perdure.core.messages import ToolCall, ToolDecision, ToolStatus
from perdure.core.text.json_encoder import compact_json

__all__ = ["Answer", "PendingCall", "ToolReturn", "answer_digest"]


@dataclass(frozen=True, slots=True)
class ToolReturn:
    """What the caller brought back of a call that it ran itself."""

    call_id: str
    text: str
    status: ToolStatus = "success"
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()


Answer = ToolDecision | ToolReturn
"""What is said to one pending call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A call that waits, and where: `run_id` is the run that stopped at it, `message_id` the model's answer with it."""

    agent_id: AgentId
    conversation_id: ConversationId
    run_id: RunId
    message_id: MessageId
    call: ToolCall

    @property
    def call_id(self) -> str:
        return self.call.call_id

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The model's arguments. They were checked before anybody was asked."""
        found: dict[str, Any] = json.loads(self.call.arguments) if self.call.arguments.strip() else {}
        return found

    @property
    def awaits_client(self) -> bool:
        """Whether the caller has to run it; else a person has to approve it."""
        return self.call.awaits == "client"


def answer_digest(answers: Sequence[Answer]) -> str:
    """What tells the same answer, sent again, from another one."""
    said = sorted(
        compact_json({name: getattr(one, name) for name in one.__slots__ if name != "type"}) for one in answers
    )
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogatepass")).hexdigest()
