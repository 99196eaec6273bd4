"""Searching: a query gets its vector, a unit of work finds and ranks, and the best may be put in order once more.

The one way to what agents remember: their tools, the library, HTTP and the command line all come through here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perdure.core.agents import Agent
from perdure.core.errors import ModelError, NotFound
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.messages import MessageFilter
from perdure.core.passages import Archive, PassageFilter
from perdure.core.ports import Clock, Embedder, WordEmbedder
from perdure.domain.archives.units import archives_of
from perdure.engine.search.late_interaction import LateInteraction
from perdure.search.hits import HITS_MAX, Arm, Hits, MessageHit, PassageHit, with_arm
from perdure.search.recalled import Recalled, RecallScope
from perdure.storage.store import Store
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from perdure.search.archive_cache import ArchiveCache
    from perdure.search.history import Histories
    from perdure.search.passages import RankedPassages
    from perdure.search.request import SearchRequest
    from perdure.search.vectors.index import VectorIndexes

QUERY_TIMEOUT_S = 3.0
"""How long a query's vector is waited for. Without it, words find what they find."""

FIRST_HITS = 50
"""So many hits come from a small pool of the best candidates. Whoever asks for more gets those of a larger one behind
them, so that the hits of a page do not depend on the size of the page."""

_ALL_MESSAGES = MessageFilter()
_ALL_PASSAGES = PassageFilter()


class Search:
    """Searches one store. Its memory of vectors and histories is a cache: each search sees what is committed.

    Args:
        embedder: makes the query's vector; None is lexical-only, and `reason` says why, and what helps.
        late_s: how long it may take to compare the first hits with the query word by word, by an embedder that can.
    """

    def __init__(
        self, store: Store, clock: Clock, *, embedder: Embedder | None = None, reason: str = "", late_s: float = 0.0
    ) -> None:
        self._store, self._clock = store, clock
        self._embedder, self._reason = embedder, reason
        self._late = (
            LateInteraction(embedder, deadline_s=late_s) if late_s and isinstance(embedder, WordEmbedder) else None
        )
        self._memory: _Memory | None = None

    async def messages(
        self,
        agent_id: AgentId,
        text: str,
        *,
        where: MessageFilter = _ALL_MESSAGES,
        limit: int = 5,
        offset: int = 0,
        explain: bool = False,
    ) -> Hits[MessageHit]:
        """The messages of the agent's whole history that best match, best first; without a text the newest ones.

        Args:
            limit, offset: so many hits, and how many before them are passed over; together at most 1,000.

        Raises: NotFound, StoreError.
        """
        from perdure.search import messages as search
        from perdure.search.query.names import without_names

        most = offset + limit
        if not text.strip():

            def newest(tx: Tx) -> Hits[MessageHit]:
                return search.newest_messages(tx, tx.agents.get(agent_id), where=where, limit=most)

            return (await self._store.read(newest)).page(offset, limit)

        if self._embedder is None and most <= FIRST_HITS:  # nothing is waited for: one unit of work does it all
            by_words = self._request_without_vector(text)

            def find_by_words(tx: Tx) -> Hits[MessageHit]:
                agent = tx.agents.get(agent_id)
                found = search.rank_messages(tx, agent, replace(by_words, timezone=agent.timezone), where=where)
                return search.read_messages(tx, found, limit=most, explain=explain)

            return (await self._store.read(find_by_words)).page(offset, limit)

        def prepare(tx: Tx) -> tuple[Agent, Sequence[str]]:
            agent = tx.agents.get(agent_id)
            # A name in the query is matched by itself: in its vector it would drown the rest.
            return agent, self._histories.of(tx, agent_id).names if self._embedder else ()

        agent, names = await self._store.read(prepare)
        request = await self._request(text, names=names, timezone=agent.timezone)

        def find(tx: Tx) -> Hits[MessageHit]:
            found = search.rank_messages(tx, agent, request, where=where)
            return search.read_messages(tx, found, limit=min(most, FIRST_HITS), explain=explain)

        def find_more(tx: Tx) -> Hits[MessageHit]:
            found = search.rank_messages(tx, agent, request, where=where, limit=HITS_MAX)
            return search.read_messages(tx, found, limit=HITS_MAX, explain=explain)

        if self._late is None:
            hits = await self._store.read(find)
        else:
            found = await self._store.read(search.rank_messages, agent, request, where=where)
            ranked, left_out = await self._late.rerank(found.ranked, without_names(text, names), found.first_texts)
            found = replace(found, ranked=ranked, ran=with_arm(found.ran, "late", left_out))
            hits = await self._store.read(search.read_messages, found, limit=min(most, FIRST_HITS), explain=explain)
        if most > FIRST_HITS:
            hits = hits.joined(await self._store.read(find_more), key=lambda hit: hit.message.id)
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
        """The passages that best match, best first; without a text the newest ones.

        Args:
            archives: these, or all that an agent has.
            limit, offset: so many hits, and how many before them are passed over; together at most 1,000.
            timezone: where days begin that the query names; an agent's own one comes first.
            skip_deleted: leave out archives that are gone, for those that nobody named but a list before.
            files: of an agent, find also what the files of its folders say.

        Raises: NotFound, StoreError.
        """
        from perdure.search import passages as search

        def searched(tx: Tx) -> Sequence[Archive]:
            if isinstance(archives, str):
                return archives_of(tx, archives, files=files)
            return _archives(tx, archives, skip_deleted)

        most = offset + limit
        if not text.strip():
            newest = await self._store.read(
                lambda tx: search.newest_passages(tx, searched(tx), where=where, limit=most)
            )
            return newest.page(offset, limit)

        request = await self._request(text, timezone=timezone)

        def request_here(tx: Tx) -> SearchRequest:
            return replace(request, timezone=tx.agents.get(archives).timezone) if isinstance(archives, str) else request

        first = min(most, FIRST_HITS)

        def rank(tx: Tx) -> RankedPassages:
            return search.rank_passages(tx, searched(tx), request_here(tx), where=where)

        def find_more(tx: Tx) -> Hits[PassageHit]:
            found = search.rank_passages(tx, searched(tx), request_here(tx), where=where, limit=HITS_MAX)
            return search.read_passages(found, limit=HITS_MAX, explain=explain)

        if self._late is None:
            hits = await self._store.read(lambda tx: search.read_passages(rank(tx), limit=first, explain=explain))
        else:
            found = await self._store.read(rank)
            ranked, left_out = await self._late.rerank(found.ranked, text, found.first_texts)
            found = replace(found, ranked=ranked, ran=with_arm(found.ran, "late", left_out))
            hits = search.read_passages(found, limit=first, explain=explain)
        if most > FIRST_HITS:
            hits = hits.joined(await self._store.read(find_more), key=lambda hit: hit.passage.id)
        return hits.page(offset, limit)

    async def recall(
        self,
        scope: RecallScope,
        text: str,
        *,
        budget_tokens: int,
        count: Callable[[str], int],
        floor: float = 0.0,
        explain: bool = False,
        timezone: str = "UTC",
        vector_timeout_s: float = QUERY_TIMEOUT_S,
    ) -> Recalled:
        """The best of blocks, passages and turns that fits the budget, as one text with its sources.

        Args:
            count: tokens of a text.
            floor: passages and turns below this score are left out.
            timezone: where days begin; an agent's own one comes first.
            vector_timeout_s: how long the query's vector is waited for.

        Raises: NotFound, StoreError.
        """
        from perdure.search import recall
        from perdure.search.query.names import without_names

        turns: SearchRequest | None = None
        names: Sequence[str] = ()
        if (agent_id := scope.agent_id) is not None:

            def prepare(tx: Tx) -> tuple[str, Sequence[str]]:
                wanted = scope.messages and self._embedder is not None
                return tx.agents.get(agent_id).timezone, self._histories.of(tx, agent_id).names if wanted else ()

            timezone, names = await self._store.read(prepare)
            if scope.messages:
                turns = await self._request(text, names=names, timezone=timezone, timeout_s=vector_timeout_s)
        same = turns is not None and ("vectors" in turns.without or without_names(text, names) == text)
        if turns is not None and same:
            request = turns
        else:
            request = await self._request(text, timezone=timezone, timeout_s=vector_timeout_s)

        def unit(tx: Tx) -> Recalled:
            return recall.recall(
                tx,
                scope,
                turns,
                request,
                budget_tokens=budget_tokens,
                count=count,
                floor=floor,
                explain=explain,
                timezone=timezone,
            )

        return await self._store.read(unit)

    @property
    def _histories(self) -> Histories:
        return self._held.histories

    @property
    def _held(self) -> _Memory:
        if self._memory is None:  # numpy takes 0.1 s to import, and many chats never search
            from perdure.search.archive_cache import ArchiveCache
            from perdure.search.history import Histories

            indexes = None
            if self._embedder is not None:
                from perdure.search.vectors.index import VectorIndexes

                indexes = VectorIndexes()
            self._memory = _Memory(Histories(), ArchiveCache(), indexes)
        return self._memory

    async def _request(
        self, text: str, *, names: Sequence[str] = (), timezone: str = "UTC", timeout_s: float = QUERY_TIMEOUT_S
    ) -> SearchRequest:
        from perdure.search.query.names import without_names

        if self._embedder is None:
            return self._request_without_vector(text, timezone)
        try:
            async with asyncio.timeout(timeout_s):
                vectors = await self._embedder.embed([without_names(text, names)], purpose="query")
        except TimeoutError:
            return self._request_without_vector(
                text, timezone, f"{self._embedder.handle} did not answer within {timeout_s:g} s"
            )
        except ModelError as error:
            return self._request_without_vector(text, timezone, str(error))
        return self._build_request(text, timezone, {self._embedder.handle: vectors[0]}, {})

    def _request_without_vector(self, text: str, timezone: str = "UTC", reason: str = "") -> SearchRequest:
        """Without the query's vector, and why."""
        return self._build_request(text, timezone, {}, {"vectors": reason or self._reason or "no embedder is set up"})

    def _build_request(
        self, text: str, timezone: str, vectors: Mapping[str, NDArray[np.float32]], without: Mapping[Arm, str]
    ) -> SearchRequest:
        from perdure.search.request import SearchRequest

        held = self._held
        return SearchRequest(
            text=text,
            now=self._clock.now(),
            histories=held.histories,
            archives=held.archives,
            indexes=held.indexes,
            timezone=timezone,
            vectors=vectors,
            without=without,
        )


@dataclass(frozen=True, slots=True)
class _Memory:
    histories: Histories
    archives: ArchiveCache
    indexes: VectorIndexes | None


def _archives(tx: Tx, archives: Sequence[ArchiveId], skip_deleted: bool) -> Sequence[Archive]:
    found = []
    for archive_id in archives:
        try:
            found.append(tx.archives.get(archive_id))
        except NotFound:
            if not skip_deleted:
                raise
    return found
