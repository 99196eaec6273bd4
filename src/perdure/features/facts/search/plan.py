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
    """Return the facts of a graph that best match, best first; without a text the newest ones.

    Args:
        timezone: where days begin that the query names.
    Raises: NotFound, StoreError; TooMany: the query is too long.
    """
    from perdure.features.facts.search.find import search_facts

    search.check_query(text)
    request = await search.request(text, timezone=timezone)
    return await search.store.read(
        lambda tx: search_facts(tx, tx.of(Graphs).get(graph_id), request, where=where, limit=limit, explain=explain)
    )


NAME = "facts"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactScope:
    """The facts that a recall may add: those that are true now, about the entities that some texts name.

    Args:
        texts: the latest last; None: the query alone.
        trust: the sources whose facts may stand in it; None: any.
    """

    texts: tuple[str, ...] | None = None
    limit: int = 5
    trust: tuple[TrustLabel, ...] | None = tuple(sorted(TRUSTED))


def plan_facts(tx: Tx, agent: Agent, conversation: Conversation, texts: Sequence[str]) -> tuple[str, FactScope | None]:
    """The facts that may be recalled: of the entities that the newest messages name. None: none are to be."""
    settings = load_agent_facts(agent.settings)
    if not settings.recall:
        return NAME, None
    where = MessageFilter(conversation_seq=conversation.seq, roles=("user", "assistant"))
    newest = tx.messages.newest(agent.id, where=where, limit=settings.recall_messages)
    said = [message.text for message in reversed(newest)]
    if said[-len(texts) :] != list(texts):  # the run's messages are not in the log yet
        said += texts
    return NAME, FactScope(
        texts=tuple(said)[-settings.recall_messages :],
        limit=settings.recall,
        **({"trust": None} if settings.use_untrusted else {}),
    )


def count_facts(tx: Tx, event: MemoryRecalled) -> None:
    """Count that facts were recalled: what is used fades later. No ranking reads it."""
    facts = tx.of(Facts).list_by_ids([FactId(source["id"]) for source in event.sources if source["kind"] == "fact"])
    for graph_id in {fact.graph_id for fact in facts}:
        texts = [fact.text_seq for fact in facts if fact.graph_id == graph_id]
        tx.passages.count_recall(tx.of(Graphs).get(graph_id).fact_archive_id, texts)
