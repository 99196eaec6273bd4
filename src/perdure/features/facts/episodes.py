"""Episodes: texts that programs give to a graph, such as messages of another system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.core.ids import GraphId
from perdure.core.sources import TrustLabel
from perdure.features.facts.extraction.extract import extract_texts
from perdure.features.facts.tables import Episodes, Graphs
from perdure.features.facts.units.graphs import add_episode, delete_episodes
from perdure.features.facts.values.facts import Episode, Fact, FactHit, Graph
from perdure.features.facts.views import AsyncFactViews, with_entities
from perdure.library.parts.checks import check_limit, check_text, utc
from perdure.library.parts.part import reads
from perdure.storage.tx import Tx

DELETE_ROWS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEpisode:
    """A text or a JSON document to add.

    Attributes:
        scope: whose it is: `user_id`, `agent_id`, `run_id`; `actor_id` names the speaker. Its facts have it too.
        trust: who says it: `user`, or `agent`.
        occurred_at: when; None: now.
        extract: whether facts are extracted from it.
    """

    text: str
    kind: str = "text"
    scope: Mapping[str, str] = field(default_factory=dict)
    trust: TrustLabel = "user"
    occurred_at: datetime | None = None
    extract: bool = True


class AsyncEpisodes(AsyncFactViews):
    """The texts that programs give to a graph, which need not be an agent's."""

    async def add_episodes(self, new: Sequence[NewEpisode]) -> Sequence[FactHit]:
        """Add episodes, extract them; return the new or changed facts. Raises: InvalidInput, ModelError, NotFound."""
        for one in new:
            check_text("text", one.text)
        now = self._ports.clock.now()
        times = [utc("occurred_at", one.occurred_at) or now for one in new]

        def add(tx: Tx) -> tuple[Graph, Sequence[Episode]]:
            """Store the episodes; return their graph, and those whose facts are to be extracted."""
            graph, own = tx.of(Graphs).get(self._graph_id), list[Episode]()
            for one, said_at in zip(new, times, strict=True):
                source: Any = {"trust": one.trust, "scope": one.scope, "occurred_at": said_at}
                episode = add_episode(tx, graph, one.kind, one.text, ids=self._ports.ids, at=now, **source)
                if one.extract:
                    own.append(episode)
                else:
                    tx.of(Episodes).mark_extracted(graph.id, [episode.seq], at=now)
            return graph, own

        graph, own = await self._ports.store.write(add)
        facts = await extract_texts(self._ports, graph, None, own)
        return await self._ports.store.read(with_entities, graph, facts)

    @reads
    def episodes(
        self, tx: Tx, scope: Mapping[str, str], *, limit: int = 100, newest_first: bool = False
    ) -> Sequence[Episode]:
        """List the episodes of a scope. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        return tx.of(Episodes).list(
            tx.of(Graphs).get(self._graph_id).id, scope=scope, newest_first=newest_first, limit=limit
        )

    async def delete_episodes(self, scope: Mapping[str, str]) -> Sequence[Fact]:
        """Delete a scope's episodes; return the facts retracted for lack of another source. Raises: NotFound."""
        retracted: list[Fact] = []

        def delete(tx: Tx) -> tuple[int, Sequence[Fact]]:
            """Delete some of the episodes; return how many, and the facts that this retracted."""
            graph = tx.of(Graphs).get(self._graph_id)
            episodes = tx.of(Episodes).list(self._graph_id, scope=scope, limit=DELETE_ROWS)
            return len(episodes), delete_episodes(tx, graph, episodes, at=self._ports.clock.now()).lost

        count = DELETE_ROWS
        while count == DELETE_ROWS:
            count, facts = await self._ports.store.write(delete)
            retracted += facts
        return retracted

    @property
    def _graph_id(self) -> GraphId:
        """The owner as the id of a graph."""
        return GraphId(self._owner)
