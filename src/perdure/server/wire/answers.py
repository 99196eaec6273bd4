"""Shapes of answers in the OpenAPI document that the other modules build by hand: the typed messages, the chunks of
streams, and what is made of several things. The tests compare every answer with these.

Only the first request for the document imports this module.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from perdure.core.groups.group import GroupStopReason
from perdure.core.runs import StopReason
from perdure.server.wire import fields as ids
from perdure.server.wire.agents import Agent
from perdure.server.wire.shapes import Object
from perdure.server.wire.tools import Tool


class _Common(TypedDict):
    id: str
    date: ids.Time
    name: str | None
    otid: str | None
    sender_id: str | None
    step_id: ids.StepIdIn | None
    is_err: bool | None
    seq_id: int | None
    run_id: ids.RunIdIn | None


class SystemMessage(_Common):
    message_type: Literal["system_message"]
    content: str | list[Object]


class UserMessage(_Common):
    message_type: Literal["user_message"]
    content: str | list[Object]


class AssistantMessage(_Common):
    """In a stream by tokens, `content` is a piece of the text."""

    message_type: Literal["assistant_message"]
    content: str | list[Object]


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


class Call(TypedDict):
    """A tool call; `arguments` is JSON as the model wrote it."""

    name: str
    arguments: str
    tool_call_id: str


class CallPiece(TypedDict):
    """A piece of a tool call in a stream by tokens: first its name, then pieces of its arguments."""

    tool_call_id: str
    name: NotRequired[str | None]
    arguments: NotRequired[str | None]


class ToolCallMessage(_Common):
    message_type: Literal["tool_call_message"]
    tool_call: Call
    tool_calls: list[Call]


class ApprovalRequestMessage(_Common):
    """Calls that wait for an answer."""

    message_type: Literal["approval_request_message"]
    tool_call: Call
    tool_calls: list[Call]


class ToolCallChunk(_Common):
    """A call, whole or in pieces."""

    message_type: Literal["tool_call_message"]
    tool_call: CallPiece
    tool_calls: list[Call] | CallPiece


class ApprovalRequestChunk(_Common):
    """A call that waits for an answer, whole or in pieces."""

    message_type: Literal["approval_request_message"]
    tool_call: CallPiece
    tool_calls: list[Call] | CallPiece


class ToolReturn(TypedDict):
    type: Literal["tool"]
    status: Literal["success", "error"]
    tool_call_id: str
    tool_return: str | list[Object]
    stdout: list[str] | None
    stderr: list[str] | None


class ToolReturnMessage(_Common):
    """The results of the calls of one answer; the fields besides `tool_returns` are those of the first."""

    message_type: Literal["tool_return_message"]
    status: Literal["success", "error"]
    tool_call_id: str
    tool_return: str
    stdout: list[str] | None
    stderr: list[str] | None
    tool_returns: list[ToolReturn] | None


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


class ErrorMessage(TypedDict):
    """Why the run failed, after its `stop_reason`. The event has the name `error`."""

    message_type: Literal["error_message"]
    run_id: ids.RunIdIn | None
    error_type: str
    message: str
    detail: str | None
    seq_id: int | None


class Stop(TypedDict):
    """Of a group's turn, `group_stop_reason` is the exact word."""

    message_type: Literal["stop_reason"]
    stop_reason: StopReason
    group_stop_reason: NotRequired[GroupStopReason]


class Usage(TypedDict):
    completion_tokens: int
    prompt_tokens: int
    total_tokens: int


class RequestUsage(Usage):
    """Of a group's turn, `run_ids` are the runs of its speakers."""

    message_type: Literal["usage_statistics"]
    step_count: int
    run_ids: list[ids.RunIdIn] | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    context_tokens: int | None


_Shown: TypeAlias = (
    SystemMessage
    | UserMessage
    | AssistantMessage
    | ReasoningMessage
    | HiddenReasoningMessage
    | ToolReturnMessage
    | ApprovalResponseMessage
    | SummaryMessage
    | EventMessage
)

Message = Annotated[_Shown | ToolCallMessage | ApprovalRequestMessage, Field(discriminator="message_type")]
"""A message of the history."""

Chunk = Annotated[
    _Shown | ToolCallChunk | ApprovalRequestChunk | Ping | ErrorMessage | Stop | RequestUsage,
    Field(discriminator="message_type"),
]
"""The data of one event of a stream."""


class StoredMessage(TypedDict):
    """A row of the log by role: calls and results are no messages of their own."""

    id: ids.MessageIdIn
    role: Literal["assistant", "tool"]
    agent_id: ids.AgentIdIn
    run_id: ids.RunIdIn
    step_id: str | None
    created_at: ids.Time
    content: list[Object]
    tool_calls: list[Object] | None
    tool_call_id: str | None
    tool_returns: list[Object]


class BatchMessages(TypedDict):
    messages: list[StoredMessage]


class CompletionText(TypedDict):
    role: Literal["assistant"]
    content: str
    tool_calls: NotRequired[list[Object]]


class CompletionChoice(TypedDict):
    index: int
    message: CompletionText
    finish_reason: Literal["stop", "length", "tool_calls"]


class Completion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: ids.AgentIdIn
    choices: list[CompletionChoice]
    usage: Object


class ToolHit(TypedDict):
    tool: Tool
    embedded_text: str | None
    fts_rank: int | None
    vector_rank: int | None
    combined_score: float


class ToolRun(TypedDict):
    status: Literal["success", "error"]
    func_return: Any
    agent_state: Agent | None
    stdout: list[str] | None
    stderr: list[str] | None


class ToolMessage(TypedDict):
    id: ids.MessageIdIn
    date: ids.Time
    message_type: Literal["tool_return_message"]
    tool_return: str
    status: Literal["success", "error"]
    stdout: list[str]
    stderr: list[str]


class Deleted(TypedDict):
    matched: int
    deleted: int
    dry_run: bool


class Reply(TypedDict):
    messages: list[Message]
    stop_reason: Stop
    usage: RequestUsage
    logprobs: Object | None
    turns: list[Object] | None


class Generated(TypedDict):
    content: str
    model: str
    usage: RequestUsage


class ImportedAgents(TypedDict):
    agent_ids: list[ids.AgentIdIn]
    warnings: list[str]


class Imported(TypedDict):
    conversation_id: ids.ConversationIdIn
    imported: int
    skipped: int
    out_of_order: int
    reset: int
    hint: str | None


class Job(TypedDict):
    id: ids.JobIdIn
    job_type: Literal["run", "batch"]
    agent_id: ids.AgentIdIn | None
    status: Literal["created", "running", "completed", "failed", "cancelled"]
    created_at: ids.Time
    updated_at: ids.Time
    completed_at: ids.Time | None
    background: bool | None
    metadata: Object
    stop_reason: StopReason | None
    callback_url: str | None
    total_duration_ns: int | None


class Trace(TypedDict):
    id: str
    step_id: ids.StepIdIn
    run_id: ids.RunIdIn
    agent_id: ids.AgentIdIn
    request_json: Object
    response_json: Object
    created_at: ids.Time


class Model(TypedDict):
    handle: str
    name: str
    display_name: str
    provider_type: str
    provider_name: str
    model_type: Literal["llm"]
    context_window: int
    max_context_window: int


class Context(TypedDict):
    """The tokens of the parts (`num_tokens_...`) and their texts; they sum to `context_window_size_current`."""

    context_window_size_max: int
    context_window_size_current: int
    num_messages: int
    num_archival_memory: int
    num_recall_memory: int
    system_prompt: str
    core_memory: str
    functions_definitions: list[Object] | None
    messages: list[Object]


class Health(TypedDict):
    version: str
    status: str
    perdure: NotRequired[str]


class Confirmation(TypedDict):
    message: str
