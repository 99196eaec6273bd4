"""The port of telemetry: work that has a beginning and an end, facts that are counted, and who listens.

The engine reports what it does and knows nobody who listens. A listener must be quick, and never raises.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perdure.core.ids import RunId
from perdure.core.models import ModelReply, ModelRequest
from perdure.core.ports import EmbedPurpose
from perdure.core.runs import Run, Usage
from perdure.core.specs import ToolOutcome

current_run: ContextVar[Run | None] = ContextVar("current_run", default=None)
"""The run that is being driven here, so that its log lines name it."""


@dataclass(slots=True, kw_only=True)
class Work:
    """A piece of work. Whoever does it fills in the fields of its result until its end. `error`: the kind of the error
    that ended it, such as `rate_limited`; empty: none."""

    error: str = ""


@dataclass(slots=True, kw_only=True)
class RunWork(Work):
    """The driving of a run by this process. Without a stop reason the run goes on elsewhere, or waits for a person."""

    run: Run
    stop_reason: str = ""
    steps: int = 0
    usage: Usage | None = None


@dataclass(slots=True, kw_only=True)
class ModelWork(Work):
    """One model call, with all its tries. `request` is None where it could not be made; `reply` where none came."""

    model: str
    request: ModelRequest | None = None
    reply: ModelReply | None = None


@dataclass(slots=True, kw_only=True)
class ToolWork(Work):
    """The execution of one tool call."""

    kind: str
    name: str
    call_id: str
    arguments: Mapping[str, Any]
    outcome: ToolOutcome | None = None


@dataclass(slots=True, kw_only=True)
class EmbeddingWork(Work):
    """The making of vectors; `texts` is how many."""

    model: str
    purpose: EmbedPurpose
    texts: int


@dataclass(frozen=True, slots=True)
class RunRequested:
    """A caller asks for a run in this task, so the work of the run belongs to what this task is doing."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    """A run was taken over from a process that no longer works on it."""

    run: Run


@dataclass(frozen=True, slots=True)
class CompactionDone:
    """Messages left a view; `by` says how: a summary by a model or by our code, or large texts that were cut."""

    by: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction of the store has ended.

    Args:
        seconds: from the call to its end, the wait for a turn included.
        outcome: `busy` if the database gave it up in favour of others; `error` for every other error of the store. An
            error that a unit of work raises is none of the store.
        retries: how often it was run again.
    """

    kind: Literal["read", "write"]
    seconds: float
    outcome: Literal["ok", "busy", "error"] = "ok"
    retries: int = 0


Fact = RunRequested | LeaseTaken | CompactionDone | Transaction


def error_kind(error: BaseException) -> str:
    """Return the kind of an error, one of a closed set: never its text, which may quote a user."""
    if isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception):
        return "cancelled"
    kind = getattr(error, "kind", None) or getattr(error, "code", None)
    return kind if isinstance(kind, str) else "internal_error"


class ModelNames(Protocol):
    """The names and prices of models for listeners. None of the names comes from a user."""

    def provider(self, handle: str) -> str:
        """Return the kind of the model's provider, such as `openai`; `own`: the program's; else `unknown`."""

    def label(self, handle: str) -> str:
        """Return the model's name if the catalog or the operator gave it; `other` if a user did."""

    def price(self, handle: str, usage: Usage) -> float | None:
        """The US dollars for this usage; None: unknown."""


class Telemetry(Protocol):
    """The listener to what the program does."""

    def during(self, work: Work) -> AbstractContextManager[object]:
        """Return a context around a piece of work: its beginning and, with the fields filled in, its end are noted. An
        error that leaves the context is not changed."""

    def count(self, fact: Fact) -> None:
        """Note something that happened. May be called in any thread."""


NOTHING: AbstractContextManager[object] = contextlib.nullcontext()


class NoTelemetry:
    """`Telemetry` without listeners."""

    def during(self, work: Work) -> AbstractContextManager[object]:
        return NOTHING

    def count(self, fact: Fact) -> None:
        pass
