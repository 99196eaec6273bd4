"""Calls that wait for somebody, as the wire shows them, and the answers to them, as clients send them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from perdure.core.answers import Answer, ToolReturn
from perdure.core.errors import InvalidInput
from perdure.core.messages import ToolDecision
from perdure.engine.approvals.answers import Pending
from perdure.server.errors import invalid_body
from perdure.server.limits import Items
from perdure.server.unsupported import NotSupported
from perdure.server.wire.base import WireRequest
from perdure.server.wire.messages import Shown, wire_messages


class ApprovalIn(WireRequest):
    """A decision about one call, or what the client brought back of it. `arguments`, what the call is run with in place
    of the model's own, are ours."""

    type: Literal["approval", "tool", "tool_return"] | None = None
    tool_call_id: str
    approve: bool | None = None
    reason: str | None = None
    arguments: str | dict[str, Any] | None = None
    tool_return: str | Items[dict[str, Any]] | None = None
    status: Literal["success", "error"] = "success"
    stdout: Items[str] | None = None
    stderr: Items[str] | None = None


class AnswerIn(WireRequest):
    """A message that answers calls. The older form is one decision, by the id of its call or of the request."""

    type: Literal["approval", "tool_return"] | None = None
    approvals: Items[ApprovalIn] | None = None
    tool_returns: Items[ApprovalIn] | None = None
    approve: bool | None = None
    approval_request_id: str | None = None
    reason: str | None = None
    otid: str | None = None


def is_answer(item: Mapping[str, Any]) -> bool:
    """Whether this message of a request answers calls. A field that is null is one that was not sent."""
    kind = item.get("type")
    return kind in ("approval", "tool_return") or (
        kind is None and any(item.get(name) is not None for name in ("approvals", "approve", "tool_returns"))
    )


def answers_in(items: Sequence[Mapping[str, Any]]) -> tuple[Answer, ...] | None:
    """The answers in the messages of a request; None: there are none. An older one names the request in place of a
    call. Raises: RequestValidationError, InvalidInput, NotSupported."""
    found: list[Answer] = []
    any_answer = False
    for index, item in enumerate(items):
        if not is_answer(item):
            continue
        any_answer = True
        try:
            answer = AnswerIn.model_validate(item)
        except ValidationError as error:
            raise invalid_body(error, "messages", index) from error
        given = (*(answer.approvals or ()), *(answer.tool_returns or ()))
        if not given and answer.approve is None:
            raise InvalidInput(f"body.messages.{index}: give approvals, tool_returns, or approve")
        if not given and answer.approve is not None:
            found.append(ToolDecision(answer.approval_request_id or "", answer.approve, answer.reason))
        found += [_answer(one, f"body.messages.{index}") for one in given]
    return tuple(found) if any_answer else None


def pending_shape(pending: Pending | None) -> dict[str, Any] | None:
    """The request for approval that an agent waits for, with those of its calls that nobody has answered yet."""
    if pending is None:
        return None
    calls = {one.call.call_id for one in pending.waiting}
    for shape in wire_messages(pending.message, Shown()):
        if shape["message_type"] == "approval_request_message":
            left = [call for call in shape["tool_calls"] if call["tool_call_id"] in calls]
            return shape | {"tool_call": left[0], "tool_calls": left} if left else None
    return None


def _answer(one: ApprovalIn, where: str) -> Answer:
    what = f"{where}: the answer to call {one.tool_call_id!r:.80}"
    if one.tool_return is not None and (one.approve is not None or one.type == "approval"):
        raise InvalidInput(f"{what} is a decision and what a tool returned: give approve or tool_return, not both")
    if one.approve is not None:
        if one.type not in (None, "approval"):
            raise InvalidInput(f"{what} is of type {one.type!r}: a decision is of type 'approval'")
        return ToolDecision(one.tool_call_id, one.approve, one.reason, _arguments(one, what))
    if one.tool_return is None:
        raise InvalidInput(f"{what} has neither approve nor tool_return")
    text = one.tool_return
    if not isinstance(text, str):
        for part in text:
            if part.get("type", "text") != "text" or not isinstance(part.get("text"), str):
                raise NotSupported(f"{where}: only text can be brought back by a tool on this server")
        text = "\n".join(part["text"] for part in text)
    return ToolReturn(one.tool_call_id, text, one.status, tuple(one.stdout or ()), tuple(one.stderr or ()))


def _arguments(one: ApprovalIn, what: str) -> str | None:
    if one.arguments is None or isinstance(one.arguments, str):
        return one.arguments
    try:
        return json.dumps(one.arguments, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise InvalidInput(f"{what}: its arguments can't be written as JSON: {error}") from error
