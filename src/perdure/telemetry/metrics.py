"""Metrics in the format of Prometheus. No label holds an id, or a name that a user gave.

Several processes that serve one address share a folder of files (`PROMETHEUS_MULTIPROC_DIR`, set before the first
import of this file); each of them answers with the sums over all.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from perdure.core.runs import Usage
from perdure.core.telemetry import (
    CompactionDone,
    EmbeddingWork,
    Fact,
    LeaseTaken,
    ModelNames,
    ModelWork,
    RunWork,
    ToolWork,
    Transaction,
    Work,
    error_kind,
)
from perdure.telemetry.listeners import SHARED_FOLDER

MODELS_MAX = 100
"""Models with a series of their own; further ones share the label `other`."""

REQUEST_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
CALL_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
TRANSACTION_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)

FAILURE_PARTS = ("engine", "app", "library", "server")
"""Rooms whose warnings and errors are counted."""


class Metrics:
    """The metrics of one process. `listener` tells them what an engine does."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._models: set[str] = set()

        def counter(name: str, what: str, *labels: str) -> Counter:
            """Return a new counter of the registry."""
            return Counter(f"perdure_{name}", what, labels, registry=registry)

        def histogram(name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            """Return a new histogram of the registry."""
            return Histogram(f"perdure_{name}", what, labels, registry=registry, buckets=buckets)

        def gauge(name: str, what: str) -> Gauge:
            """Return a new gauge, summed over processes."""
            return Gauge(f"perdure_{name}", what, registry=registry, multiprocess_mode="livesum")

        self.requests = counter("http_requests_total", "Requests by route.", "method", "route", "status")
        self.request_seconds = histogram(
            "http_request_seconds", "Time to the end of the answer.", REQUEST_BUCKETS_S, "method", "route"
        )
        self.streams = gauge("streams_open", "Answers that are being streamed.")
        self.runs = counter("runs_total", "Runs that ended here.", "stop_reason")
        self.runs_open = gauge("runs_driven", "Runs that are being driven.")
        self.run_seconds = histogram("run_seconds", "Time that runs were driven.", CALL_BUCKETS_S)
        self.steps = counter("steps_total", "Model calls of the runs that ended here.")
        names = ("provider", "model")
        self.model_calls = counter("model_calls_total", "Model calls.", *names, "purpose", "outcome")
        self.model_seconds = histogram("model_call_seconds", "Time of model calls.", CALL_BUCKETS_S, *names)
        self.model_tokens = counter("model_tokens_total", "Tokens by kind.", *names, "kind")
        self.model_cost = counter("model_cost_dollars_total", "US dollars, of models with a known price.", *names)
        self.tool_calls = counter("tool_calls_total", "Executed tool calls.", "kind", "outcome")
        self.tool_seconds = histogram("tool_call_seconds", "Time of tool calls.", CALL_BUCKETS_S, "kind")
        self.embeddings = counter("embedding_calls_total", "Calls of the embedder.", "purpose", "outcome")
        self.embedded_texts = counter("embedded_texts_total", "Texts whose vectors were made.", "purpose")
        self.embedding_seconds = histogram("embedding_call_seconds", "Time of those calls.", CALL_BUCKETS_S, "purpose")
        self.compactions = counter("compactions_total", "Times that messages left a view.", "by")
        self.leases = counter("leases_taken_over_total", "Runs taken over from another process.")
        self.transactions = counter("store_transactions_total", "Transactions of the store.", "kind", "outcome")
        self.transaction_seconds = histogram(
            "store_transaction_seconds", "Time of transactions, with waiting.", TRANSACTION_BUCKETS_S, "kind"
        )
        self.retries = counter("store_retries_total", "Transactions that were run again.")
        self.problems = counter("problems_total", "Warnings and errors of the log.", "part", "level")

    def render(self, queues: Mapping[str, int]) -> bytes:
        """Return all metrics in the format of Prometheus, with `queues`: name of a queue -> its length."""
        lengths = _Queues(queues)
        if not os.environ.get(SHARED_FOLDER):
            return generate_latest(self._registry) + generate_latest(lengths)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared) + generate_latest(lengths)

    def listener(self, names: ModelNames) -> MetricsListener:
        """Return a `Telemetry` that counts in these metrics, for an engine whose models `names` names."""
        return MetricsListener(self, names)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests.labels(method, route, str(status)).inc()
        self.request_seconds.labels(method, route).observe(seconds)

    def model_label(self, name: str) -> str:
        """Return the label of the model `name`: itself, or `other` once there are `MODELS_MAX` labels."""
        if name not in self._models:
            if len(self._models) >= MODELS_MAX:
                return "other"
            self._models.add(name)
        return name

    @contextlib.contextmanager
    def counted_log(self) -> Iterator[None]:
        """Count the warnings and errors of Perdure's own code inside the context."""
        handler = _LogCounter(self.problems)
        logger = logging.getLogger("perdure")
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


class MetricsListener:
    """`Telemetry` that counts in `Metrics`, for one engine."""

    def __init__(self, metrics: Metrics, names: ModelNames) -> None:
        self._metrics, self._names = metrics, names

    @contextlib.contextmanager
    def during(self, work: Work) -> Iterator[None]:
        """Count a piece of work, its time and the kind of its error, at its end."""
        metrics, began = self._metrics, time.perf_counter()
        is_run = isinstance(work, RunWork)
        if is_run:
            metrics.runs_open.inc()
        error = ""
        try:
            yield
        except BaseException as raised:
            error = error_kind(raised)
            raise
        finally:
            if is_run:
                metrics.runs_open.dec()
            self._count_work(work, work.error or error, time.perf_counter() - began)

    def _count_work(self, work: Work, error: str, seconds: float) -> None:
        """Count what has ended; `error` is the kind of its error, which comes from a closed set."""
        metrics = self._metrics
        match work:
            case RunWork():
                if work.stop_reason:
                    metrics.runs.labels(work.stop_reason).inc()
                    metrics.steps.inc(work.steps)
                metrics.run_seconds.observe(seconds)
            case ModelWork():
                self._count_model(work, error, seconds)
            case ToolWork():
                outcome = error or (work.outcome.status if work.outcome is not None else "success")
                metrics.tool_calls.labels(work.kind, outcome).inc()
                metrics.tool_seconds.labels(work.kind).observe(seconds)
            case EmbeddingWork():
                metrics.embeddings.labels(work.purpose, error or "success").inc()
                metrics.embedding_seconds.labels(work.purpose).observe(seconds)
                if not error:
                    metrics.embedded_texts.labels(work.purpose).inc(work.texts)

    def _count_model(self, work: ModelWork, error: str, seconds: float) -> None:
        """Count a model call, its time, tokens and cost; `error`: as for `_count_work`."""
        metrics, usage = self._metrics, Usage() if work.reply is None else work.reply.usage
        names = (self._names.provider(work.model), metrics.model_label(self._names.label(work.model)))
        purpose = "reply" if work.request is None else work.request.purpose
        metrics.model_calls.labels(*names, purpose, error or "success").inc()
        metrics.model_seconds.labels(*names).observe(seconds)
        for kind, tokens in (
            ("input", usage.input_tokens),
            ("cached_input", usage.cached_input_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("output", usage.output_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            if tokens:
                metrics.model_tokens.labels(*names, kind).inc(tokens)
        if work.reply is not None and (dollars := self._names.price(work.model, usage)):
            metrics.model_cost.labels(*names).inc(dollars)

    def count(self, fact: Fact) -> None:
        match fact:
            case Transaction():
                self._metrics.transactions.labels(fact.kind, fact.outcome).inc()
                self._metrics.transaction_seconds.labels(fact.kind).observe(fact.seconds)
                if fact.retries:
                    self._metrics.retries.inc(fact.retries)
            case CompactionDone():
                self._metrics.compactions.labels(fact.by).inc()
            case LeaseTaken():
                self._metrics.leases.inc()


class _Queues(CollectorRegistry):
    """A registry with one metric: the lengths of queues at this moment."""

    def __init__(self, lengths: Mapping[str, int]) -> None:
        super().__init__()
        self._lengths = lengths

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("perdure_queue_length", "What waits in the store.", labels=["queue"])
        for name, length in self._lengths.items():
            family.add_metric([name], length)
        yield family


class _LogCounter(logging.Handler):
    """Counts the lines of the log by the file that wrote them."""

    def __init__(self, problems: Counter) -> None:
        super().__init__(logging.WARNING)
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        part = record.name.removeprefix("perdure.")
        if part.partition(".")[0] in FAILURE_PARTS:
            self._problems.labels(part, record.levelname.lower()).inc()
