"""Pending calls, which wait for a person's approval or for the caller to run them, and answers to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from perdure.core.ids import AgentId, ConversationId, MessageId, RunId
from perdure.core.messages import Image, ImageLink, ToolCall, ToolDecision, ToolStatus
from perdure.core.text.json_strings import compact_json


@dataclass(frozen=True, slots=True)
class ToolReturn:
    """The result of a call that the caller ran."""

    call_id: str
    text: str
    status: ToolStatus = "success"
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    images: tuple[Image | ImageLink, ...] = ()


Answer = ToolDecision | ToolReturn
"""The answer to one pending call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A call that waits for an answer. `run_id` is the run that stopped at it, `message_id` the model's message with
    the call; `reason`: why a person is asked, where it is not the tool's own rule; `helper`: the name of the helper
    that made it, or empty."""

    agent_id: AgentId
    conversation_id: ConversationId
    run_id: RunId
    message_id: MessageId
    call: ToolCall
    reason: str = ""
    helper: str = ""

    @property
    def call_id(self) -> str:
        return self.call.call_id

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The model's arguments, checked against the tool's schema."""
        arguments: dict[str, Any] = json.loads(self.call.own_arguments) if self.call.arguments.strip() else {}
        return arguments

    @property
    def awaits_client(self) -> bool:
        """Whether the caller runs it; else a person approves it."""
        return self.call.awaits == "client"


def answer_digest(answers: Sequence[Answer]) -> str:
    """Return a digest of answers, whatever their order; it is stored, and tells a retry from other answers."""
    shapes = [asdict(answer) for answer in answers]
    for shape in shapes:  # as older versions wrote them: without the type, and without an empty list of pictures
        shape.pop("type", None)
        if not shape.get("images", True):
            del shape["images"]
    texts = sorted(map(compact_json, shapes))
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
