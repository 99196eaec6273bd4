"""Retrievers over Perdure's own storing and searching path, for programs that measure retrieval from outside.

A retriever has `index(turns)`, called once, and `search(query, k)`, which gives the ids of turns, best first. A turn
has `id`, `conversation`, `speaker`, `when` (ISO date and time) and `body`.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from perdure import AsyncPerdure
from perdure.settings import Settings

__all__ = ["make_lexical_retriever", "make_retriever"]

T = TypeVar("T")


class Turn(Protocol):
    id: str
    conversation: str
    speaker: str
    when: str
    body: str


class Retriever:
    """One agent's history in a store of its own; `embedding` is the setting of that name."""

    def __init__(self, embedding: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        settings = replace(Settings(), embedding=embedding)
        self._perdure = self._run(AsyncPerdure.open(Path(self._folder.name) / "store.db", settings=settings))
        self._agent = self._run(self._perdure.create_agent("measured", model="perdure/extractive"))
        self._turns: dict[int, str] = {}

    def index(self, turns: Sequence[Turn]) -> None:
        from perdure.core.ids import MessageId
        from perdure.core.messages import Draft, Text

        ports = self._perdure.app.ports
        first: dict[str, str] = {}

        def unit(tx: Any) -> list[int]:
            out = []
            for turn in turns:
                who = first.setdefault(turn.conversation, turn.speaker)
                out += [
                    m.seq
                    for m in tx.messages.append(
                        self._agent.id,
                        [
                            Draft(
                                id=MessageId(ports.ids.new("message")),
                                role="user" if turn.speaker == who else "assistant",
                                parts=(Text(turn.body),),
                                name=turn.speaker,
                                occurred_at=datetime.fromisoformat(turn.when).replace(tzinfo=UTC),
                            )
                        ],
                        conversation_seq=0,
                        at=datetime.now(UTC),
                        tokens=[40],
                    )
                ]
            return out

        seqs = self._run(self._perdure.app.store.write(unit))
        self._turns = {seq: turn.id for seq, turn in zip(seqs, turns, strict=True)}

    def search(self, query: str, k: int) -> list[str]:
        hits = self._run(self._perdure.app.search.messages(self._agent.id, query, limit=k))
        return [self._turns[hit.message.seq] for hit in hits]

    def close(self) -> None:
        self._run(self._perdure.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._folder.cleanup()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def make_lexical_retriever() -> Retriever:
    """Without embeddings."""
    return Retriever("none")


def make_retriever() -> Retriever:
    """With the local embedder when its weights are found, else without."""
    return Retriever("")
