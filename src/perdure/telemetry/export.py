"""Sending spans to a collector by OTLP over HTTP, as the standard variables say."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from importlib.metadata import version

from perdure.core.errors import ExtraMissing

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_MS = 3_000
"""How long a server that stops waits for the collector."""


def wants_export(environment: Mapping[str, str]) -> bool:
    """Whether the environment asks for spans to be sent."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return exporter == "otlp" or (not exporter and any(environment.get(name, "").strip() for name in ENDPOINTS))


@contextlib.contextmanager
def exported_spans(environment: Mapping[str, str]) -> Iterator[bool]:
    """Send the spans of this process inside the context, if the environment asks for it; whether it does.

    Raises: ExtraMissing.
    """
    if not wants_export(environment):
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
