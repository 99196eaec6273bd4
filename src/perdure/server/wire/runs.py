"""Runs, steps, usage and stop reasons on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from perdure.core import runs
from perdure.core.ids import RunId, is_id
from perdure.core.messages import Message
from perdure.core.runs import Feedback, RunStatus
from perdure.core.secrets import hide_secret
from perdure.domain.conversations import spans
from perdure.domain.conversations.spans import StepTimes, trace_id
from perdure.domain.conversations.units import join_batches
from perdure.library.messages.reply import Reply, ReplyTurn
from perdure.library.runs.steps import StepOfRun
from perdure.server.wire.base import ORG_ID, WIRE_SETTING, WireRequest, fields_in, nulls
from perdure.server.wire.fields import AgentIdIn, ConversationIdIn, RunIdIn, Tags, ToolIdIn
from perdure.server.wire.messages import Display, wire_messages
from perdure.server.wire.models import WireModelFacts
from perdure.server.wire.shapes import Object, WireShape, computed, read

WireRunStatus = Literal["created", "running", "completed", "failed", "cancelled"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FeedbackIn(WireRequest):
    """What somebody thinks of a step."""

    feedback: Feedback | None = None
    tags: Tags | None = None


class ReplayIn(WireRequest):
    """How the requests of a run are sent again; what is left out stays as it was."""

    model: str | None = None
    system: str | None = None


def wire_status(status: RunStatus | Literal["expired"]) -> str:
    """The status of a run or batch in the wire's words."""
    return "created" if status == "queued" else status


CALLBACK_FIELDS: Mapping[str, Any] = {
    "callback_url": computed(lambda one: one.callback and hide_secret(one.callback.url)[0]),
    **read(**{f"callback_{name}": f"callback.{name}" for name in ("sent_at", "status_code", "error")}),
}
"""The callback of a run or batch, and what became of its last try."""


class WireRun(
    WireShape,
    of=runs.Run,
    fields="id status created_at completed_at key.agent_id conversation_id background metadata stop_reason",
    completed_at="ended_at",
    unlisted=nulls("base_template_id", "ttft_ns")
    | {"request_config": computed(lambda run: _request_config(run)), **CALLBACK_FIELDS},
):
    """A run. Runs of an agent's first conversation have no `conversation_id`."""

    status: WireRunStatus = computed(lambda run: wire_status(run.status))
    conversation_id: ConversationIdIn | None = computed(
        lambda run: run.conversation_id if run.conversation_seq else None
    )
    metadata: Object = computed(lambda run: _metadata(run))
    total_duration_ns: int | None = computed(lambda run: ns_between(run.started_at or run.created_at, run.ended_at))


def _metadata(run: runs.Run) -> Object:
    """How a run was begun, and why it failed."""
    is_async = run.background and run.batch_id is None and "stream_tokens" not in run.options.form
    metadata: Object = {"run_type": "send_message_async" if is_async else "send_message"}
    if run.batch_id is not None:
        metadata["batch_id"] = run.batch_id
    if run.failure is not None:
        metadata["error"] = {"type": run.failure.kind, "message": run.failure.message}
    return metadata


def _request_config(run: runs.Run) -> dict[str, Any]:
    """In which form the caller gets the run's messages."""
    display = Display.of(run.options.form)
    return {
        "use_assistant_message": display.use_assistant_message,
        "assistant_message_tool_name": display.tool_name,
        "assistant_message_tool_kwarg": display.tool_argument,
        "include_return_message_types": run.options.form.get("include_return_message_types"),
    }


class Trace(
    WireShape,
    of=runs.Step,
    fields="id step_id run_id agent_id request_json response_json call_type created_at org_id",
    step_id="id",
    unlisted={"call_type": "agent_step", "org_id": ORG_ID},
):
    """The provider's request and answer of a step. `request_json` leaves out the messages, which the log has."""

    run_id: RunIdIn
    request_json: Object
    response_json: Object


class WireStep(
    WireShape,
    of=StepOfRun,
    fields="step.id run_id step.agent_id provider_name model model_handle completion_tokens prompt_tokens total_tokens"
    " step.stop_reason step.tags trace_id step.feedback error_type error_data status",
    run_id="run.id",
    completion_tokens="step.usage.output_tokens",
    prompt_tokens="step.usage.input_tokens",
    total_tokens="step.usage.total_tokens",
    model_handle="step.model",
    error_type="step.failure.kind",
    unlisted=nulls("origin", "provider_id", "model_endpoint", "tid", "request_id")
    | read(*(f"step.usage.{name}" for name in ("cached_input_tokens", "cache_write_tokens", "reasoning_tokens")))
    | {"organization_id": ORG_ID, "messages": []}
    | nulls("provider_category", "context_window_limit", "project_id"),
):
    """A model call. One that a dead process left (`abandoned`) is `failed` on the wire."""

    provider_name: str = computed(lambda one: one.step.model.partition("/")[0])
    model: str = computed(lambda one: one.step.model.partition("/")[2] or one.step.model)
    error_data: Object | None = computed(lambda one: one.step.failure and {"message": one.step.failure.message})
    status: Literal["pending", "success", "failed", "cancelled"] = computed(
        lambda one: "failed" if one.step.status == "abandoned" else one.step.status
    )
    trace_id: str = computed(lambda one: trace_id(one.run.id))


def step_shape(one: StepOfRun, facts: WireModelFacts) -> WireStep:
    """A model call with all wire fields; its project, and its window if unrecorded, are the agent's."""
    settings = one.agent.settings
    return WireStep.make(
        one,
        provider_category=facts.provider_category,
        context_window_limit=one.step.recipe.window_tokens or facts.window_of(settings),
        project_id=settings.get(WIRE_SETTING, {}).get("project_id"),
        **detail_fields(one.step.usage),
    )


class RunMetrics(
    WireShape,
    of=runs.Run,
    fields="id key.agent_id",
    num_steps="step_count",
    unlisted=nulls("project_id", "template_id", "base_template_id"),
):
    """How long a run took, and what it used."""

    run_start_ns: int = computed(lambda run: _ns(run.started_at or run.created_at))
    run_ns: int | None = computed(lambda run: ns_between(run.started_at or run.created_at, run.ended_at))
    tools_used: list[ToolIdIn]


class StepMetrics(
    WireShape,
    of=StepTimes,
    id="step_id",
    unlisted=nulls("provider_id", "project_id", "template_id", "base_template_id"),
):
    """How long a step took."""

    run_id: RunIdIn
    agent_id: AgentIdIn
    step_start_ns: int = computed(lambda times: _ns(times.started_at))
    llm_request_start_ns: int = computed(lambda times: _ns(times.started_at))
    llm_request_ns: int | None = computed(lambda times: ns_between(times.started_at, times.answered_at))
    tool_execution_ns: int | None = computed(
        lambda times: times.answered_at and ns_between(times.answered_at, times.last_result_at)
    )
    step_ns: int | None = computed(
        lambda times: ns_between(times.started_at, times.last_result_at or times.answered_at)
    )


class WireSpan(WireShape, of=spans.RunSpan, span_id="id", parent_span_id="parent_id", span_name="name"):
    """A stretch of a run, with the names of OpenTelemetry."""

    trace_id: str
    start_time_unix_nano: int = computed(lambda span: _ns(span.started_at))
    end_time_unix_nano: int | None = computed(lambda span: span.ended_at and _ns(span.ended_at))
    duration_ns: int | None = computed(lambda span: ns_between(span.started_at, span.ended_at))
    status_code: Literal["OK", "ERROR", "UNSET"] = computed(
        lambda span: "ERROR" if span.failed else "OK" if span.ended_at else "UNSET"
    )
    attributes: Object = computed(lambda span: fields_in(span.attributes))


def run_ids_of(trace_ids: Sequence[str]) -> tuple[RunId, ...]:
    """The runs of these traces; a text that is no trace's id is left out."""
    found = (f"run-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}" for text in trace_ids)
    return tuple(RunId(run_id) for run_id in found if is_id("run", run_id))


def _ns(at: datetime) -> int:
    """Nanoseconds since 1970."""
    return round((at - _EPOCH) / timedelta(microseconds=1)) * 1_000


def ns_between(began: datetime, ended: datetime | None) -> int | None:
    """Nanoseconds between two times, at least 0; None: it has not ended."""
    return None if ended is None else max(0, _ns(ended) - _ns(began))


class WireUsage(
    WireShape,
    of=runs.Usage,
    fields="completion_tokens prompt_tokens total_tokens",
    completion_tokens="output_tokens",
    prompt_tokens="input_tokens",
):
    """The tokens of a run."""


class RequestUsage(
    WireUsage,
    fields="message_type completion_tokens prompt_tokens total_tokens step_count run_ids cached_input_tokens"
    " cache_write_tokens reasoning_tokens context_tokens",
):
    """A request's usage; `context_tokens`: its newest model call's; `run_ids`: the speakers' runs of a group turn."""

    message_type: Literal["usage_statistics"] = "usage_statistics"
    step_count: int
    run_ids: list[RunIdIn] | None = None
    context_tokens: int | None


def stop_reason(reason: str) -> dict[str, Any]:
    """The wire message that says why a run ended."""
    return {"message_type": "stop_reason", "stop_reason": reason}


def reply_messages(messages: Sequence[Message], display: Display) -> list[dict[str, Any]]:
    """The wire messages of a reply, without those of the caller and of the engine."""
    shown = (message for message in join_batches(messages) if display.is_in_reply(message))
    return [shape for message in shown for shape in wire_messages(message, display)]


def letta_response(reply: Reply, display: Display) -> dict[str, Any]:
    """The response to a message, not streamed."""
    return {
        "messages": reply_messages(reply.messages, display),
        "stop_reason": stop_reason(reply.stop_reason),
        "usage": RequestUsage.make(reply.usage, step_count=reply.step_count, context_tokens=reply.context_tokens),
        "logprobs": reply.logprobs,
        "turns": None if reply.turns is None else [_turn_shape(turn) for turn in reply.turns],
    }


def _turn_shape(turn: ReplyTurn) -> dict[str, Any]:
    """An answer or a result by its tokens."""
    pairs = turn.token_logprobs
    return {
        "role": "assistant" if turn.tool is None else "tool",
        "output_ids": turn.token_ids,
        "output_token_logprobs": None if pairs is None else [[*pair, None] for pair in pairs],
        "content": turn.text,
        "tool_name": turn.tool,
    }


def detail_fields(usage: runs.Usage) -> dict[str, Any]:
    """The counts of cache and reasoning tokens, under OpenAI's field names."""
    return {
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_read_tokens": usage.cached_input_tokens,
            "cache_creation_tokens": usage.cache_write_tokens,
        },
    }
