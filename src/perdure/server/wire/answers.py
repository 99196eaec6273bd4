"""Types of answers that the other modules build by hand: the typed messages, the chunks of streams, and what is made of
several things. The tests compare every answer with these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from perdure.core.features import Point
from perdure.core.runs import StopReason
from perdure.core.specs import ToolOutcome
from perdure.library.messages.paging import ImportResult
from perdure.server.wire import fields as ids
from perdure.server.wire.agents import WireAgent
from perdure.server.wire.chunks import ErrorMessage
from perdure.server.wire.conversations import StoredMessage
from perdure.server.wire.messages import WireToolReturn
from perdure.server.wire.runs import RequestUsage
from perdure.server.wire.shapes import Object, WireShape, computed
from perdure.server.wire.tools import errors_of


class _Common(WireShape):
    id: str
    date: ids.Time
    name: str | None
    otid: str | None
    sender_id: str | None
    step_id: ids.StepIdIn | None
    is_err: bool | None
    seq_id: int | None
    run_id: ids.RunIdIn | None


class _Speech(_Common):
    content: str | list[Object]


class WireSystemMessage(_Speech):
    message_type: Literal["system_message"]


class UserMessage(_Speech):
    message_type: Literal["user_message"]


class AssistantMessage(_Speech):
    """In a stream by tokens, `content` is a piece of the text."""

    message_type: Literal["assistant_message"]


class ReasoningMessage(_Common):
    """In a stream by tokens, `reasoning` is a piece of the text."""

    message_type: Literal["reasoning_message"]
    source: Literal["reasoner_model", "non_reasoner_model"]
    reasoning: str
    signature: str | None


class HiddenReasoningMessage(_Common):
    message_type: Literal["hidden_reasoning_message"]
    state: Literal["redacted", "omitted"]
    hidden_reasoning: str | None


class WireCall(WireShape):
    """A tool call; `arguments` is JSON as the model wrote it."""

    name: str
    arguments: str
    tool_call_id: str


class CallPiece(TypedDict):
    """A piece of a tool call in a stream by tokens: first its name, then pieces of its arguments."""

    tool_call_id: str
    name: NotRequired[str | None]
    arguments: NotRequired[str | None]


class _Calls(_Common):
    tool_call: WireCall
    tool_calls: list[WireCall]


class ToolCallMessage(_Calls):
    message_type: Literal["tool_call_message"]


class ApprovalRequestMessage(_Calls):
    """Calls that wait for an answer."""

    message_type: Literal["approval_request_message"]


class _CallPieces(_Common):
    tool_call: CallPiece
    tool_calls: list[WireCall] | CallPiece


class ToolCallChunk(_CallPieces):
    """A call, whole or in pieces."""

    message_type: Literal["tool_call_message"]


class ApprovalRequestChunk(_CallPieces):
    """A call that waits for an answer, whole or in pieces."""

    message_type: Literal["approval_request_message"]


class ToolReturnMessage(_Common):
    """The results of the calls of one answer; the fields besides `tool_returns` are those of the first."""

    message_type: Literal["tool_return_message"]
    status: Literal["success", "error"]
    tool_call_id: str
    tool_return: str
    stdout: list[str] | None
    stderr: list[str] | None
    tool_returns: list[WireToolReturn] | None


class ApprovalResponseMessage(_Common):
    """Decisions about calls. `approval_request_id` is the id of the first call."""

    message_type: Literal["approval_response_message"]
    approvals: list[Object] | None
    approve: bool | None
    approval_request_id: str | None
    reason: str | None


class SummaryMessage(_Common):
    message_type: Literal["summary_message"]
    summary: str
    compaction_stats: Object | None


class EventMessage(_Common):
    message_type: Literal["event_message"]
    event_type: Literal["compaction"]
    event_data: Object


class Ping(_Common):
    """Keeps a quiet connection open."""

    message_type: Literal["ping"]


if TYPE_CHECKING:
    GroupStopReason = str
else:  # the document describes it as the feature does
    GroupStopReason = next(iter(Point("group_stop_reason").functions), str)


class Stop(TypedDict):
    """Of a group's turn, `group_stop_reason` is the exact word."""

    message_type: Literal["stop_reason"]
    stop_reason: StopReason
    group_stop_reason: NotRequired[GroupStopReason]


_Shown: TypeAlias = (
    WireSystemMessage
    | UserMessage
    | AssistantMessage
    | ReasoningMessage
    | HiddenReasoningMessage
    | ToolReturnMessage
    | ApprovalResponseMessage
    | SummaryMessage
    | EventMessage
)

if TYPE_CHECKING:
    Message = Object
else:
    Message = Annotated[_Shown | ToolCallMessage | ApprovalRequestMessage, Field(discriminator="message_type")]
    """A message of the history."""

Chunk = Annotated[
    _Shown | ToolCallChunk | ApprovalRequestChunk | Ping | ErrorMessage | Stop | RequestUsage,
    Field(discriminator="message_type"),
]
"""The data of one event of a stream."""


class BatchMessages(TypedDict):
    messages: list[StoredMessage]


class ToolRun(WireShape, of=ToolOutcome, fields="status", unlisted={"sandbox_config_fingerprint": None}):
    status: Literal["success", "error"]
    func_return: Any = computed(lambda outcome: outcome.text)
    agent_state: WireAgent | None = None
    stdout: list[str] | None
    stderr: list[str] | None = computed(errors_of)


class Deleted(TypedDict):
    matched: int
    deleted: int
    dry_run: bool


class WireReply(WireShape):
    messages: list[Message]
    stop_reason: Stop
    usage: RequestUsage
    logprobs: Object | None
    turns: list[Object] | None


class WireGenerated(WireShape):
    content: str
    model: str
    usage: RequestUsage


class ImportedAgents(TypedDict):
    agent_ids: list[ids.AgentIdIn]
    warnings: list[str]


class Imported(WireShape, of=ImportResult, fields="conversation_id imported skipped out_of_order reset"):
    """What an import added."""

    hint: str | None = computed(lambda result: result.hint or None)


class Captured(Imported):
    """What a captured exchange added."""

    success: Literal[True]


class Health(TypedDict):
    version: str
    status: str
    perdure: NotRequired[str]


class Confirmation(TypedDict):
    message: str
