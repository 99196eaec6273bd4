"""Several listeners as one, an embedder whose work is reported, and the folder in which processes keep metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.core.ports import Embedder, EmbedPurpose, WordEmbedder
from perdure.core.telemetry import NOTHING, EmbeddingWork, Fact, Telemetry, Work

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Listeners:
    """`Telemetry` that passes everything on to several listeners, in the order in which they were added."""

    def __init__(self, *listeners: Telemetry) -> None:
        self._listeners = listeners

    def add(self, listener: Telemetry) -> None:
        """Add a listener, for all work that begins from now on."""
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Telemetry) -> None:
        """Remove a listener; the end of work that has begun is still reported to it."""
        self._listeners = tuple(one for one in self._listeners if one is not listener)

    def during(self, work: Work) -> AbstractContextManager[object]:
        """Report the work to all listeners."""
        reports = [report for listener in self._listeners if (report := listener.during(work)) is not NOTHING]
        if len(reports) < 2:
            return reports[0] if reports else NOTHING
        contexts = contextlib.ExitStack()
        for report in reports:
            contexts.enter_context(report)
        return contexts

    def count(self, fact: Fact) -> None:
        for listener in self._listeners:
            listener.count(fact)


def reported_embedder(embedder: Embedder, telemetry: Telemetry) -> Embedder:
    """Return an embedder that works as `embedder` and reports its calls to `telemetry`."""
    if isinstance(embedder, WordEmbedder):
        return _ReportingWordEmbedder(embedder, telemetry)
    return _ReportingEmbedder(embedder, telemetry)


class _ReportingEmbedder:
    """`Embedder` that reports its calls."""

    def __init__(self, embedder: Embedder, telemetry: Telemetry) -> None:
        self._embedder, self._telemetry = embedder, telemetry
        self.handle, self.local = embedder.handle, embedder.local

    @property
    def dimensions(self) -> int | None:
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        work = EmbeddingWork(model=self._embedder.handle, purpose=purpose, texts=len(texts))
        with self._telemetry.during(work):
            return await self._embedder.embed(texts, purpose=purpose)

    async def close(self) -> None:
        await self._embedder.close()


class _ReportingWordEmbedder(_ReportingEmbedder):
    """`_ReportingEmbedder` for an embedder that also makes vectors of words."""

    def __init__(self, embedder: WordEmbedder, telemetry: Telemetry) -> None:
        super().__init__(embedder, telemetry)
        self._with_words = embedder

    async def embed_with_words(
        self, texts: Sequence[str], *, purpose: EmbedPurpose = "document"
    ) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32]]]:
        with self._telemetry.during(EmbeddingWork(model=self.handle, purpose=purpose, texts=len(texts))):
            return await self._with_words.embed_with_words(texts, purpose=purpose)


SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable of that folder, as prometheus-client reads it when it is imported."""


def forget_process(folder: str, pid: int) -> None:
    """Remove the live gauges of an ended process from the `folder` of shared metrics; what it has counted stays."""
    for path in Path(folder).glob(f"gauge_live*_{pid}.db"):
        path.unlink(missing_ok=True)
