"""Doubles of the outside world, for our tests and yours."""

from perdure.testing.clock import FakeClock, RecordedTelemetry, SequentialIds
from perdure.testing.http_model import (
    ChunkList,
    CutOff,
    Hanging,
    HttpModel,
    Later,
    Malformed,
    RawBody,
    Refusal,
    Status,
    Unanswered,
)
from perdure.testing.inline_store import InlineStore
from perdure.testing.local_server import LocalServer
from perdure.testing.scripted_model import (
    CALL_FORMS,
    ScriptedEmbedder,
    ScriptedModel,
    calls,
    fails,
    says,
    thinks,
    writes_call,
)

__all__ = [
    "CALL_FORMS",
    "ChunkList",
    "CutOff",
    "FakeClock",
    "Hanging",
    "HttpModel",
    "InlineStore",
    "Later",
    "LocalServer",
    "Malformed",
    "RawBody",
    "RecordedTelemetry",
    "Refusal",
    "ScriptedEmbedder",
    "ScriptedModel",
    "SequentialIds",
    "Status",
    "Unanswered",
    "calls",
    "fails",
    "says",
    "thinks",
    "writes_call",
]
