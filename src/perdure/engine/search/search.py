"""Searching: a query gets its vector, and a unit of work finds, ranks, and compares the best hits word by word.

The one way to what agents remember: their tools, the library, HTTP and the command line all come through here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.core.agents import Agent
from perdure.core.errors import ModelError, NotFound
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.incoming.limits import DEFAULT_LIMITS, Limits
from perdure.core.messages import MessageFilter, MessageScope
from perdure.core.passages import Archive, PassageFilter
from perdure.core.ports import Clock, Embedder, EmbedPurpose, WordEmbedder
from perdure.core.vectors import VectorScope
from perdure.domain.archives.units import archives_of
from perdure.search.ranking.hits import HITS_MAX, Hits, MessageHit, PassageHit, Recalled, RecallScope
from perdure.storage.store import Store
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from perdure.search.messages import RankedMessages
    from perdure.search.passages import RankedPassages
    from perdure.search.ranking.archive_cache import ArchiveCache
    from perdure.search.ranking.history import Histories
    from perdure.search.ranking.hits import SearchRequest
    from perdure.search.vectors.index import VectorIndexes


Ranked = TypeVar("Ranked", "RankedMessages", "RankedPassages")

QUERY_TIMEOUT_S = 3.0
"""How long a query's vector is waited for. Without it, words are searched alone."""

EMBED_TIMEOUT_S = 30.0
"""How long the vectors of texts are waited for, by what works in the background."""

FIRST_HITS = 50
"""So many hits come from a small pool of the best candidates. Whoever asks for more gets those of a larger one behind
them, so that the hits of a page do not depend on the size of the page."""

_ALL_MESSAGES = MessageFilter()
_ALL_PASSAGES = PassageFilter()


class Search:
    """Searches one store. Each search sees what is committed.

    Args:
        embedder: makes the query's vector; None is lexical-only, and `reason` says why, and what helps.
        limits: how long a query may be.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        embedder: Embedder | None = None,
        reason: str = "",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.store, self._clock, self.limits = store, clock, limits
        self._embedder, self._reason = embedder, reason

    async def messages(
        self,
        agent_id: AgentId,
        text: str,
        *,
        where: MessageFilter = _ALL_MESSAGES,
        limit: int = 5,
        offset: int = 0,
        explain: bool = False,
        known: tuple[Agent, MessageScope] | None = None,
    ) -> Hits[MessageHit]:
        """Find the messages of the agent's whole history that best match, best first; without a text the newest ones.

        Args:
            known: the agent, and what was loaded of it for a search with this filter; None: both are loaded.
            limit, offset: so many hits, and how many before them are passed over; together at most 1,000.

        Raises: NotFound, StoreError; TooMany, as of all searches: the query is too long.
        """
        from perdure.search import messages as search

        self.check_query(text)
        last = offset + limit
        if not text.strip():
            newest = await self.store.read(
                lambda tx: search.newest_messages(tx, tx.agents.get(agent_id), where=where, limit=last)
            )
            return newest.page(offset, limit)

        def prepare(tx: Tx) -> tuple[Agent, Sequence[str]]:
            """Return the agent, and the names in its history, which the query's vector leaves out."""
            agent = tx.agents.get(agent_id) if known is None else known[0]
            # A name in the query is matched by itself: in its vector it would drown the rest.
            return agent, self._caches.histories.load(tx, agent_id, upto).names if self._embedder else ()

        upto, scope = (None, None) if known is None else (known[1].next_seq, known[1])
        agent, names = await self.store.read(prepare)
        request = await self.request(text, names=names, timezone=agent.timezone)

        def rank(tx: Tx, limit: int = 0) -> RankedMessages:
            """Return the ranked messages, compared word by word if the query has vectors of its words."""
            found = search.rank_messages(tx, agent, request, where=where, limit=limit, scope=scope)
            return _compare_words(tx, found, request) if request.words else found

        def read(tx: Tx, found: RankedMessages, limit: int = min(last, FIRST_HITS)) -> Hits[MessageHit]:
            """Return the texts of the best messages as hits."""
            return search.read_messages(tx, found, limit=limit, explain=explain)

        hits = await self.store.read(lambda tx: read(tx, rank(tx)))
        if last > FIRST_HITS:
            more = await self.store.read(lambda tx: read(tx, rank(tx, HITS_MAX), HITS_MAX))
            hits = hits.extend_new(more, key=lambda hit: hit.message.id)
        return hits.page(offset, limit)

    async def passages(
        self,
        archives: AgentId | Sequence[ArchiveId],
        text: str,
        *,
        where: PassageFilter = _ALL_PASSAGES,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
        timezone: str = "UTC",
        skip_deleted: bool = False,
        files: bool = False,
    ) -> Hits[PassageHit]:
        """Find the passages that best match, best first; without a text the newest ones.

        Args:
            archives: these, or all that an agent has.
            limit, offset: so many hits, and how many before them are passed over; together at most 1,000.
            timezone: where days begin that the query names; an agent's own one comes first.
            skip_deleted: leave out archives that are gone instead of raising NotFound, as for ids out of a list.
            files: of an agent, find also what the files of its folders say.

        Raises: NotFound, StoreError.
        """
        from perdure.search import passages as search

        def load(tx: Tx) -> tuple[Sequence[Archive], str]:
            """Return the archives to search, and the time zone for dates."""
            if isinstance(archives, str):
                return archives_of(tx, archives, files=files), tx.agents.get(archives).timezone
            found = tx.archives.list_by_ids(archives)
            if not skip_deleted and (gone := [archive_id for archive_id in archives if archive_id not in found]):
                raise NotFound("archive", gone[0])
            return [*found.values()], timezone

        self.check_query(text)
        last = offset + limit
        if not text.strip():
            newest = await self.store.read(lambda tx: search.newest_passages(tx, load(tx)[0], where=where, limit=last))
            return newest.page(offset, limit)

        request = await self.request(text)

        def rank(tx: Tx, limit: int = search.CANDIDATES) -> RankedPassages:
            """Return the ranked passages, compared word by word if the query has vectors of its words."""
            searched, zone = load(tx)
            found = search.rank_passages(tx, searched, replace(request, timezone=zone), where=where, limit=limit)
            return _compare_words(tx, found, request) if request.words else found

        hits = search.read_passages(await self.store.read(rank), limit=min(last, FIRST_HITS), explain=explain)
        if last > FIRST_HITS:
            more = search.read_passages(await self.store.read(rank, HITS_MAX), limit=HITS_MAX, explain=explain)
            hits = hits.extend_new(more, key=lambda hit: hit.passage.id)
        return hits.page(offset, limit)

    async def recall(
        self, scope: RecallScope, text: str, *, count: Callable[[str], int], vector_timeout_s: float = QUERY_TIMEOUT_S
    ) -> Recalled:
        """Recall the best of blocks, passages and turns that fits the budget, as one text with its sources.

        Args:
            count: tokens of a text.
            vector_timeout_s: how long the query's vector is waited for.

        Raises: NotFound, StoreError.
        """
        from perdure.search import recall
        from perdure.search.ranking.query import without_names

        self.check_query(text)
        turns, names = None, tuple[str, ...]()
        if scope.agent_id is not None and scope.messages:
            if self._embedder is not None:
                names = (await self.store.read(self._caches.histories.load, scope.agent_id)).names
            turns = await self.request(text, names=names, timeout_s=vector_timeout_s)
        request = turns
        if request is None or not ("vectors" in request.without or without_names(text, names) == text):
            request = await self.request(text, timeout_s=vector_timeout_s)

        return await self.store.read(recall.recall, scope, turns, request, count=count)

    @property
    def has_embedder(self) -> bool:
        """Whether texts get vectors."""
        return self._embedder is not None

    async def nearest(
        self, archive_id: ArchiveId, texts: Sequence[str], *, limit: int
    ) -> Sequence[Sequence[tuple[Mapping[str, Any], float]]]:
        """Return for each text the passages of an archive that are nearest in meaning, best first, as (source, cosine).
        Empty without an embedder, or if the passages have no vectors of it. Raises: NotFound, StoreError."""
        embedder, indexes = self._embedder, self._caches.indexes
        if embedder is None or indexes is None:
            return [() for _ in texts]

        def find_scope(tx: Tx) -> VectorScope | None:
            """Return the archive's vectors, if they are of the current embedder."""
            scope = tx.vectors.scope(tx.archives.get(archive_id).number)
            return scope if scope is not None and scope.row_count and scope.model == embedder.handle else None

        if await self.store.read(find_scope) is None or (vectors := await self.embed(texts)) is None:
            return [() for _ in texts]

        def find(tx: Tx) -> Sequence[Sequence[tuple[Mapping[str, Any], float]]]:
            """Return the nearest passages of each vector."""
            scope = find_scope(tx)
            if scope is None or scope.dimensions != vectors.shape[1]:
                return [() for _ in texts]
            found = []
            for vector in vectors:
                near = indexes.search(tx, scope, vector, limit=limit)
                cosines = dict(zip(near.seqs.tolist(), near.scores.tolist(), strict=True))
                passages = tx.passages.list_by_seqs(archive_id, list(cosines))
                found.append(sorted(((one.source, cosines[one.seq]) for one in passages), key=lambda pair: -pair[1]))
            return found

        return await self.store.read(find)

    async def embed(
        self, texts: Sequence[str], *, purpose: EmbedPurpose = "document", timeout_s: float = EMBED_TIMEOUT_S
    ) -> NDArray[np.float32] | None:
        """Return the vectors of texts; None: there is no embedder, or it does not answer in time."""
        if self._embedder is None or not texts:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                return await self._embedder.embed(texts, purpose=purpose)
        except (TimeoutError, ModelError):
            return None

    def check_query(self, text: str) -> None:
        """Check the length of a query: each agent's names, dates and words are looked for in all of it."""
        self.limits.check("query_limit_chars", len(text))

    @cached_property
    def _caches(self) -> _Caches:
        """What searches keep of the store; made by the first: many chats never search, and numpy takes 0.1 s."""
        from perdure.search.ranking.archive_cache import ArchiveCache
        from perdure.search.ranking.history import Histories
        from perdure.search.vectors.index import VectorIndexes

        return _Caches(Histories(), ArchiveCache(), None if self._embedder is None else VectorIndexes())

    async def request(
        self, text: str, *, names: Sequence[str] = (), timezone: str = "UTC", timeout_s: float = QUERY_TIMEOUT_S
    ) -> SearchRequest:
        """Build a query's request, with vectors of it and its words if in time. `names`: left out of the vector."""
        from perdure.search.ranking.hits import SearchRequest
        from perdure.search.ranking.query import without_names

        vectors: dict[str, NDArray[np.float32]] = {}
        words: dict[str, NDArray[np.float32]] = {}
        reason = self._reason or "no embedder is set up"
        if (embedder := self._embedder) is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    query = [without_names(text, names)]
                    if isinstance(embedder, WordEmbedder):
                        embedded, (words[embedder.handle],) = await embedder.embed_with_words(query, purpose="query")
                    else:
                        embedded = await embedder.embed(query, purpose="query")
                vectors[embedder.handle] = embedded[0]
            except TimeoutError:
                reason = f"{embedder.handle} did not answer within {timeout_s:g} s"
            except ModelError as error:
                reason = str(error) or type(error).__name__
        caches = self._caches
        return SearchRequest(
            text=text,
            now=self._clock.now(),
            histories=caches.histories,
            archives=caches.archives,
            indexes=caches.indexes,
            timezone=timezone,
            vectors=vectors,
            words=words,
            without={} if vectors else {"vectors": reason},
        )


@dataclass(frozen=True, slots=True)
class _Caches:
    """What searches keep of the store, by agent and archive; each search sees what is committed."""

    histories: Histories
    archives: ArchiveCache
    indexes: VectorIndexes | None


def _compare_words(tx: Tx, found: Ranked, request: SearchRequest) -> Ranked:
    """Return the ranked hits, the first of them compared with the query word by word."""
    from perdure.search.ranking.late import compare_words

    ranked, ran = compare_words(tx, found.ranked, found.ran, request, found.numbers)
    return replace(found, ranked=ranked, ran=ran)
