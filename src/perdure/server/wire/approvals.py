"""Calls that wait for a decision or for the client, and the client's answers to them."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import ConfigDict

from perdure.core.answers import Answer, ToolReturn
from perdure.core.errors import InvalidInput
from perdure.core.messages import ToolDecision
from perdure.engine.approvals.answers import Pending
from perdure.server.wire.base import WireRequest
from perdure.server.wire.content import Part, parse_return
from perdure.server.wire.fields import Items, Name
from perdure.server.wire.messages import Display, wire_messages

ANSWER_FIELDS = ("approvals", "tool_returns", "approve")


class CallAnswerIn(WireRequest):
    """The answer to one call: a decision, or the result of a client's tool. `arguments`, which replace the model's own,
    are Perdure's."""

    type: Literal["approval", "tool", "tool_return"] | None = None
    tool_call_id: Name
    approve: bool | None = None
    reason: str | None = None
    arguments: str | dict[str, Any] | None = None
    tool_return: str | Items[Part] | None = None
    status: Literal["success", "error"] = "success"
    stdout: Items[str] | None = None
    stderr: Items[str] | None = None

    def answer(self, where: str) -> Answer:
        """The answer, as a run stores it. `where`: the place of its message. Raises: InvalidInput, NotSupported."""
        name = f"{where}: the answer to call {self.tool_call_id!r:.80}"
        if self.tool_return is not None and (self.approve is not None or self.type == "approval"):
            raise InvalidInput(f"{name} is a decision and what a tool returned: give approve or tool_return, not both")
        if self.approve is not None:
            if self.type not in (None, "approval"):
                raise InvalidInput(f"{name} is of type {self.type!r}: a decision is of type 'approval'")
            return ToolDecision(self.tool_call_id, self.approve, self.reason, self._arguments_text(name))
        if self.tool_return is None:
            raise InvalidInput(f"{name} has neither approve nor tool_return")
        text, images = parse_return(self.tool_return, f"{where.removeprefix('body.')}.tool_return")
        return ToolReturn(
            self.tool_call_id, text, self.status, tuple(self.stdout or ()), tuple(self.stderr or ()), images
        )

    def _arguments_text(self, name: str) -> str | None:
        """The arguments as JSON. Raises: InvalidInput: they hold NaN or an infinity."""
        if self.arguments is None or isinstance(self.arguments, str):
            return self.arguments
        try:
            return json.dumps(self.arguments, ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise InvalidInput(f"{name}: its arguments can't be written as JSON: {error}") from error


class AnswerIn(WireRequest):
    """A message that answers calls. The older form is one decision, by the id of its call or of the request."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in ANSWER_FIELDS]
        }
    )

    type: Literal["approval", "tool_return"] | None = None
    approvals: Items[CallAnswerIn] | None = None
    tool_returns: Items[CallAnswerIn] | None = None
    approve: bool | None = None
    approval_request_id: Name | None = None
    reason: str | None = None
    otid: Name | None = None

    def answers(self, where: str) -> list[Answer]:
        """The answers, as a run stores them. `where`: the place of the message. Raises: InvalidInput, NotSupported."""
        answers = [*(self.approvals or ()), *(self.tool_returns or ())]
        if answers:
            return [answer.answer(where) for answer in answers]
        if self.approve is None:
            raise InvalidInput(f"{where}: give approvals, tool_returns, or approve")
        return [ToolDecision(self.approval_request_id or "", self.approve, self.reason)]


def pending_shape(pending: Pending | None) -> dict[str, Any] | None:
    """The request for approval that an agent waits for, with those of its calls that have no answer yet."""
    if pending is None:
        return None
    waiting = {waiting.call.call_id for waiting in pending.waiting}
    for shape in wire_messages(pending.message, Display()):
        if shape["message_type"] == "approval_request_message":
            calls = [call for call in shape["tool_calls"] if call["tool_call_id"] in waiting]
            return shape | {"tool_call": calls[0], "tool_calls": calls} if calls else None
    return None
