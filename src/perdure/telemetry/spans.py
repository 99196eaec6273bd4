"""Spans by OpenTelemetry's conventions for generative AI, through its API package alone.

Who wants them sets up an SDK, or has `perdure serve` do so (`exported_spans`). The names are those of semantic
conventions 1.41; all of them are still marked as in development there. What was said, and what tools were given and
answered, is recorded only if `content` is on.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ExtraMissing
from perdure.core.messages import Part, Text, ToolCall, ToolResult
from perdure.core.models import ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.core.telemetry import (
    NOTHING,
    EmbeddingWork,
    Fact,
    ModelNames,
    ModelWork,
    RunRequested,
    RunWork,
    ToolWork,
    Work,
    error_kind,
)
from perdure.core.text.json_strings import encodable

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

SCOPE = "perdure"
ORIGINS_MAX = 10_000
"""Runs that were asked for and have not begun, of which it is known who asked."""

CONTENT_CHARS = 100_000
"""The most characters of one attribute."""

_TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})

TOOL_TYPES: Mapping[str, str] = {"memory": "datastore", "mcp": "extension"}
"""Kind of a tool -> its type in the conventions; all others are functions."""


class Spans:
    """`Telemetry` that makes spans, as soon as this process has set up OpenTelemetry or is sent a trace. `providers`:
    our name of a provider -> the conventions' name, where they differ. `content`: whether messages, arguments and
    results are recorded."""

    def __init__(self, names: ModelNames, *, providers: Mapping[str, str] = {}, content: bool = False) -> None:
        self._names, self._providers, self._content = names, providers, content
        self._tracer: Tracer | None = None
        self._origins: OrderedDict[str, Context] = OrderedDict()

    def during(self, work: Work) -> AbstractContextManager[object]:
        tracer = self._find_tracer()
        return NOTHING if tracer is None else self._during(tracer, work)

    def count(self, fact: Fact) -> None:
        """Remember in which trace a run was asked for: its driver may be a task of another request."""
        if not isinstance(fact, RunRequested) or self._find_tracer() is None:
            return
        from opentelemetry import context, trace

        if trace.get_current_span().get_span_context().is_valid:
            self._origins[fact.run_id] = context.get_current()
            if len(self._origins) > ORIGINS_MAX:
                self._origins.popitem(last=False)

    def _find_tracer(self) -> Tracer | None:
        """Return the tracer; None: this process has set up no SDK, and no caller has sent a trace."""
        if self._tracer is None and (trace := sys.modules.get("opentelemetry.trace")) is not None:
            is_set_up = type(trace.get_tracer_provider()) is not trace.ProxyTracerProvider
            if is_set_up or trace.get_current_span().get_span_context().is_valid:
                self._tracer = trace.get_tracer(SCOPE)
        return self._tracer

    @contextlib.contextmanager
    def _during(self, tracer: Tracer, work: Work) -> Iterator[None]:
        """A span around a piece of work, with its error and result."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, Status, StatusCode

        # A run that was taken over, or that a schedule has begun, is a trace of its own.
        parent = self._origins.pop(work.run.id, Context()) if isinstance(work, RunWork) else None
        name, attributes = self._begin(work)
        kind = SpanKind.CLIENT if isinstance(work, ModelWork | EmbeddingWork) else SpanKind.INTERNAL
        with tracer.start_as_current_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            record_exception=False,  # its text may quote messages
            set_status_on_exception=False,
        ) as span:
            error = ""
            try:
                yield
            except BaseException as raised:
                error = error_kind(raised)
                raise
            finally:
                if span.is_recording():
                    if isinstance(work, ToolWork) and work.outcome is not None and work.outcome.status != "success":
                        error = error or "tool_error"
                    if error := work.error or error:
                        span.set_attribute("error.type", error)
                        span.set_status(Status(StatusCode.ERROR))
                    self._end(span, work)

    def _begin(self, work: Work) -> tuple[str, dict[str, Any]]:
        """Return (the name of the span for a piece of work, its attributes at the beginning)."""
        match work:
            case RunWork(run=run):
                return "invoke_agent", {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.provider.name": "perdure",
                    "gen_ai.agent.id": run.key.agent_id,
                    "gen_ai.conversation.id": run.conversation_id,
                    "perdure.run.id": run.id,
                    "perdure.run.lease_number": run.lease_number,
                }
            case ModelWork():
                return f"chat {work.model}", self._model("chat", work.model)
            case EmbeddingWork():
                attributes = self._model("embeddings", work.model)
                return f"embeddings {work.model}", attributes | {"perdure.embeddings.texts": work.texts}
            case ToolWork():
                attributes = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": work.name,
                    "gen_ai.tool.call.id": work.call_id,
                    "gen_ai.tool.type": TOOL_TYPES.get(work.kind, "function"),
                    "perdure.tool.kind": work.kind,
                }
                if self._content:
                    attributes["gen_ai.tool.call.arguments"] = _json(work.arguments)
                return f"execute_tool {work.name}", attributes
            case _:
                return type(work).__name__, {}

    def _model(self, operation: str, handle: str) -> dict[str, Any]:
        """Return the attributes that all spans of calls to the model `handle` have."""
        provider = self._names.provider(handle)
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": self._providers.get(provider, provider),
            "gen_ai.request.model": handle.partition("/")[2] or handle,
        }

    def _end(self, span: Span, work: Work) -> None:
        """Set the attributes of a span that are known only when its work ends."""
        match work:
            case RunWork():
                if work.stop_reason:
                    span.set_attribute("perdure.run.stop_reason", work.stop_reason)
                    span.set_attribute("perdure.run.steps", work.steps)
                if work.usage is not None:
                    _put_usage(span, work.usage)
            case ModelWork():
                if work.request is not None:
                    self._put_request(span, work.request)
                if work.reply is not None:
                    self._put_reply(span, work.reply)
            case ToolWork(outcome=outcome):
                if self._content and outcome is not None:
                    span.set_attribute("gen_ai.tool.call.result", encodable(outcome.text[:CONTENT_CHARS]))

    def _put_request(self, span: Span, request: ModelRequest) -> None:
        """Set the attributes of a model's request; what was said only if content is on."""
        span.set_attribute("perdure.model.purpose", request.purpose)
        options = request.options
        if options.max_output_tokens is not None:
            span.set_attribute("gen_ai.request.max_tokens", options.max_output_tokens)
        if options.temperature is not None:
            span.set_attribute("gen_ai.request.temperature", options.temperature)
        if self._content:
            texts = [{"type": "text", "content": text} for text in (request.system, request.opening) if text]
            span.set_attribute("gen_ai.system_instructions", _json(texts))
            span.set_attribute(
                "gen_ai.input.messages",
                _json([{"role": message.role, "parts": _parts(message.parts)} for message in request.messages]),
            )

    def _put_reply(self, span: Span, reply: ModelReply) -> None:
        """Set the attributes of a model's reply; what was said only if content is on."""
        span.set_attribute("gen_ai.response.finish_reasons", [reply.stop_reason])
        _put_usage(span, reply.usage)
        if self._content:
            shape = {"role": "assistant", "parts": _parts(reply.parts), "finish_reason": reply.stop_reason}
            span.set_attribute("gen_ai.output.messages", _json([shape]))


def client_trace(headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[object]:
    """Return a context in which all work belongs to the trace that a request's `traceparent` header names."""
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in _TRACE_HEADERS}
    return _in_trace(carrier) if carrier and "opentelemetry.trace" in sys.modules else NOTHING


@contextlib.contextmanager
def _in_trace(carrier: Mapping[str, str]) -> Iterator[None]:
    """Put all work inside the context into the trace of `carrier`, header -> value."""
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def _put_usage(span: Span, usage: Usage) -> None:
    span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
    if usage.cached_input_tokens:
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens)
    if usage.cache_write_tokens:
        span.set_attribute("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens)
    if usage.reasoning_tokens:
        span.set_attribute("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens)


def _parts(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    """Return the parts of a message in the shape of the conventions; pictures are only mentioned."""
    shapes: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Text():
                shapes.append({"type": "text", "content": part.text})
            case ToolCall():
                shapes.append({"type": "tool_call", "id": part.call_id, "name": part.name, "arguments": part.arguments})
            case ToolResult():
                shapes.append({"type": "tool_call_response", "id": part.call_id, "response": part.text})
            case _:
                shapes.append({"type": type(part).__name__.lower()})
    return shapes


def _json(value: Any) -> str:
    """Return a value as JSON, cut to `CONTENT_CHARS`."""
    return encodable(json.dumps(value, ensure_ascii=False, default=str)[:CONTENT_CHARS])


ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_MS = 3_000
"""How long a server that stops waits for the collector."""


@contextlib.contextmanager
def exported_spans(environment: Mapping[str, str]) -> Iterator[bool]:
    """Send the process's spans to a collector, if the environment asks for it; yield whether. Raises: ExtraMissing."""
    is_off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    is_named = exporter == "otlp" or (not exporter and any(environment.get(name, "").strip() for name in ENDPOINTS))
    if is_off or not is_named:
        yield False
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ExtraMissing("spans are to be sent to a collector", extra="otel") from error
    # What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say wins: `create` merges them over these.
    name = {} if environment.get("OTEL_SERVICE_NAME", "").strip() else {"service.name": "perdure"}
    provider = TracerProvider(resource=Resource.create({**name, "service.version": version("perdure")}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield True
    finally:
        provider.force_flush(FLUSH_MS)
        provider.shutdown()
