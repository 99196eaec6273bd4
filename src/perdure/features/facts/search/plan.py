"""A search of facts, and what a recall is to find of them: what is needed before either begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.events import MemoryRecalled
from perdure.core.ids import FactId, GraphId
from perdure.core.messages import MessageFilter
from perdure.core.sources import TRUSTED, TrustLabel
from perdure.engine.search.search import Search
from perdure.features.facts.tables import Facts, Graphs
from perdure.features.facts.values.facts import FactFilter, FactHit
from perdure.features.facts.values.settings import load_agent_facts
from perdure.search.ranking.hits import Hits
from perdure.storage.tx import Tx


async def find_facts(
    search: Search,
    graph_id: GraphId,
    text: str,
    *,
    where: FactFilter,
    limit: int = 10,
    explain: bool = False,
    timezone: str = "UTC",
) -> Hits[FactHit]:
    """Return the facts of a graph that best match a text, best first; without a text the newest ones. `timezone` says
    where days begin that the text names. Raises: NotFound, StoreError; TooMany: the text is too long."""
    from perdure.features.facts.search.find import search_facts

    search.check_query(text)
    request = await search.request(text, timezone=timezone)
    return await search.store.read(
        lambda tx: search_facts(tx, tx.of(Graphs).get(graph_id), request, where=where, limit=limit, explain=explain)
    )


NAME = "facts"
"""The key of a `FactScope` in `RecallScope.features`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactScope:
    """Which facts a recall may add: facts that are true now, about the entities that some texts name.

    Args:
        texts: the latest last; None: the query of the recall alone.
        limit: the most facts.
        trust: the kinds of sources whose facts count; None: all.
    """

    texts: tuple[str, ...] | None = None
    limit: int = 5
    trust: tuple[TrustLabel, ...] | None = tuple(sorted(TRUSTED))


def plan_facts(tx: Tx, agent: Agent, conversation: Conversation, texts: Sequence[str]) -> tuple[str, FactScope | None]:
    """Return `NAME` and which facts a run's recall may add; None: none. `texts` are the run's own messages; with the
    newest of the conversation they name the entities."""
    settings = load_agent_facts(agent.settings)
    if not settings.recall:
        return NAME, None
    where = MessageFilter(conversation_seq=conversation.seq, roles=("user", "assistant"))
    newest = tx.messages.newest(agent.id, where=where, limit=settings.recall_messages)
    recent = [message.text for message in reversed(newest)]
    if recent[-len(texts) :] != list(texts):  # the run's messages are not in the log yet
        recent += texts
    return NAME, FactScope(
        texts=tuple(recent)[-settings.recall_messages :],
        limit=settings.recall,
        **({"trust": None} if settings.use_untrusted else {}),
    )


def count_facts(tx: Tx, event: MemoryRecalled) -> None:
    """Count that the facts of a recall were used, so that they fade later. No ranking reads it."""
    facts = tx.of(Facts).list_by_ids([FactId(source["id"]) for source in event.sources if source["kind"] == "fact"])
    for graph_id in {fact.graph_id for fact in facts}:
        texts = [fact.text_seq for fact in facts if fact.graph_id == graph_id]
        tx.passages.count(tx.of(Graphs).get(graph_id).fact_archive_id, texts, "recalls")
