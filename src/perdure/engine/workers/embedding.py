"""The embedding worker: claims texts in the store's queue and embeds them.

The queue is durable and a claim ends by itself, so a kill loses nothing and several processes share the work. A write
never waits for a vector, and never fails for lack of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Concatenate, ParamSpec, TypeVar

from perdure.core.errors import ModelAuthenticationFailed, ModelError, ModelNotFound, ModelQuotaExceeded, StoreError
from perdure.core.incoming.backoff import backoff_s
from perdure.core.ports import Clock, Embedder, Randomness, WordEmbedder
from perdure.core.tasks import to_the_end
from perdure.domain.archives.embedding import ClaimedText, claim_texts, store_vectors
from perdure.engine.workers.worker import Worker
from perdure.storage.store import Store, StoreOver
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

LEASE_S = 15.0
"""How long a claim lasts; a third of it passes between renewals."""

POLL_S = 1.0
"""How often the queue is checked for texts of another process."""

DOWN_S, DOWN_MAX_S = 0.25, 1.0
"""The first and the longest pause while an endpoint does not answer. Each try sends one text."""

REFUSED_S = 30.0
"""The pause when the endpoint refuses everything: a wrong key, no credit, no such model."""

TEXTS, LANES = 64, 4
"""Texts of one request, and concurrent requests, to an embedder behind a network."""

LOCAL_TEXTS = 32
"""Texts of one request to an embedder in this process: one batch of its model."""

FILL_TEXTS = 1_000
"""How many texts of a scope enter the queue in one transaction, so that it stays short."""

TRIES, TRY_AGAIN_S = 3, 5.0
"""Tries of a text that the provider refuses; before each next one it waits this long, times the tries so far."""

WORDS_MAX = 64
"""The words of a text whose signs are kept: with its vector they fit on a page of a SQLite file."""

PROBE = "text"
"""A text that every provider embeds unless it refuses all requests."""


class _Unavailable(Exception):
    """The embedder can't be used for now."""

    def __init__(self, error: Exception, pause_s: float | None) -> None:
        super().__init__(str(error))
        self.pause_s = pause_s


@dataclass(slots=True)
class _TextBatch:
    """Texts of one request, claimed until `claimed_until`. `lock` guards that time while it is renewed or used."""

    texts: list[ClaimedText]
    claimed_until: datetime
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class WatchedStore(StoreOver):
    """`Store` that embeds new agents and archives with `model`, and calls `on_queued` when texts were queued."""

    def __init__(self, store: Store, model: str, on_queued: Callable[[], None]) -> None:
        super().__init__(store)
        self._model, self._on_queued = model, on_queued

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Write with the embedding model in use; call `on_queued` if texts were queued."""
        queued = False

        def watched(tx: Tx) -> T:
            """Run the unit with this embedder as the default for new scopes, and note whether it queued texts."""
            nonlocal queued
            with tx.vectors.use_embedding(self._model):
                before = tx.vectors.queue_count
                result = unit(tx, *args, **kwargs)
                queued = tx.vectors.queue_count != before
            return result

        result = await self._store.write(watched)
        if queued:
            self._on_queued()
        return result


class EmbeddingWorker(Worker):
    """Embeds queued texts.

    `trouble` says why it waits, for people; None: it works.
    """

    def __init__(self, store: Store, embedder: Embedder, *, clock: Clock, randomness: Randomness) -> None:
        super().__init__("embedding", self._embed_all, POLL_S)
        self._store, self._embedder, self._clock, self._randomness = store, embedder, clock, randomness
        self._failures = 0
        self.trouble: str | None = None

    async def _embed_all(self) -> None:
        """Begin to embed what is queued. Raises: StoreError."""
        await self.take(self._claim, self._embed, at_once=1 if self._embedder.local or self._failures else LANES)

    def _back_off(self, error: _Unavailable) -> None:
        """Wait before the embedder is tried again."""
        if not self._failures:
            log.warning("texts can't be embedded for now: %s", error)
        self.trouble = str(error)
        self._failures += 1
        longest = backoff_s(self._failures, first_s=DOWN_S, most_s=DOWN_MAX_S)
        # Random, so that processes do not ask the same endpoint in step.
        self.pause(max(error.pause_s or 0.0, longest * (0.5 + self._randomness.random() / 2)))

    async def _claim(self) -> _TextBatch | None:
        """Claim texts to embed; None: the queue is empty."""
        store, model = self._store, self._embedder.handle
        limit = 1 if self._failures else LOCAL_TEXTS if self._embedder.local else TEXTS
        now = self._clock.now()
        until = now + timedelta(seconds=LEASE_S)
        while await store.read(lambda tx: tx.vectors.has_work(model, at=now)):
            count, texts = await store.write(claim_texts, model, at=now, until=until, limit=limit)
            if texts:
                return _TextBatch(texts, until)
            if not count and not await store.write(lambda tx: tx.vectors.fill(model, limit=FILL_TEXTS)):
                break
        return None

    async def _embed(self, batch: _TextBatch) -> None:
        """Embed and store a batch; after a failure, release its claims. Raises: StoreError."""
        keeper = asyncio.create_task(self._renew_for_ever(batch))
        try:
            await self._embed_texts(batch, batch.texts)
        except BaseException as error:
            async with batch.lock:
                keeper.cancel()
                with contextlib.suppress(StoreError):
                    claims = [text.claim for text in batch.texts]
                    await to_the_end(
                        self._store.write(lambda tx: tx.vectors.release(claims, claimed=batch.claimed_until))
                    )
            if not isinstance(error, _Unavailable):
                raise
            self._back_off(error)
        finally:
            keeper.cancel()

    async def _embed_texts(self, batch: _TextBatch, texts: Sequence[ClaimedText]) -> None:
        """Embed and store texts of a batch; after a refused request, by halves. Raises: _Unavailable."""
        contents = list(dict.fromkeys(text.text for text in texts))
        try:
            vectors, signs = await self._vectors(contents)
        except ModelError as error:
            if error.retryable:
                raise _Unavailable(error, error.retry_after_s) from error
            if isinstance(error, (ModelAuthenticationFailed, ModelQuotaExceeded, ModelNotFound)):
                raise _Unavailable(error, REFUSED_S) from error
            if len(texts) > 1:  # halves find the text at fault
                await self._embed_texts(batch, texts[: len(texts) // 2])
                await self._embed_texts(batch, texts[len(texts) // 2 :])
                return
            await self._retry_or_give_up(batch, texts[0], error)
            return
        self._failures, self.trouble = 0, None
        found = dict(zip(contents, zip(vectors, signs, strict=True), strict=True))
        async with batch.lock:
            await self._store.write(
                store_vectors,
                self._embedder.handle,
                [(text, *found[text.text]) for text in texts],
                claimed_until=batch.claimed_until,
            )

    async def _vectors(self, texts: Sequence[str]) -> tuple[list[bytes], Sequence[bytes | None]]:
        """Embed texts; return their vectors and the signs of their words, in stored form. Raises: ModelError."""
        from perdure.search.ranking.late import pack_signs

        signs: Sequence[bytes | None] = [None] * len(texts)
        if isinstance(self._embedder, WordEmbedder):
            vectors, words = await self._embedder.embed_with_words(texts)
            signs = [pack_signs(word[:WORDS_MAX]) for word in words]
        else:
            vectors = await self._embedder.embed(texts, purpose="document")
        return [vector.astype("<f2").tobytes() for vector in vectors], signs

    async def _retry_or_give_up(self, batch: _TextBatch, text: ClaimedText, error: ModelError) -> None:
        """Count a refused text's try, and give it up after `TRIES`, unless the provider refuses any text."""
        try:
            await self._embedder.embed([PROBE], purpose="document")
        except ModelError as other:
            raise _Unavailable(other, REFUSED_S) from other
        tries = text.claim.tries
        again = self._clock.now() + timedelta(seconds=TRY_AGAIN_S * tries) if tries < TRIES else None
        async with batch.lock:
            await self._store.write(
                lambda tx: tx.vectors.fail(text.claim, str(error), claimed=batch.claimed_until, again=again)
            )

    async def _renew_for_ever(self, batch: _TextBatch) -> None:
        """Renew the claims of a batch before they end, until the task is cancelled."""
        while True:
            await asyncio.sleep(LEASE_S / 3)
            async with batch.lock:
                until = self._clock.now() + timedelta(seconds=LEASE_S)
                with contextlib.suppress(StoreError):
                    await self._store.write(_renew, batch, until=until)
                    batch.claimed_until = until


def _renew(tx: Tx, batch: _TextBatch, *, until: datetime) -> None:
    """Extend the claims of a batch until this time."""
    tx.vectors.renew([text.claim for text in batch.texts], claimed=batch.claimed_until, until=until)
