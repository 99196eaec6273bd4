"""Which facts an answer cites: of those that its run recalled or found, those whose names it repeats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from perdure.core.events import MemoryRecalled, MessageAdded, StoredEvent
from perdure.core.facts.extraction import USER
from perdure.core.facts.values import Entity, Fact, Graph
from perdure.core.ids import FactId
from perdure.core.messages import Message
from perdure.core.runs import RunKey
from perdure.storage.tx import Tx

_FACT = re.compile(r'"id": "(fact-[0-9a-f-]{36})"')
PLACEHOLDER = "Memory"
"""The object of a sentence that a person added without naming one."""


def count_citations(tx: Tx, graph: Graph, messages: Sequence[Message]) -> None:
    """Count each fact of the graph that an answer among these messages cites as used once more."""
    for message in messages:
        if message.role != "assistant" or message.run_seq is None:
            continue
        events = tx.events.list(RunKey(message.agent_id, message.run_seq))
        shown = [fact for fact in tx.facts.list_by_ids(_shown(events, message.seq)) if fact.graph_id == graph.id]
        seqs = sorted({seq for fact in shown for seq in (fact.subject, fact.object)})
        entities = {entity.seq: entity for entity in tx.entities.list_by_seqs(graph.id, seqs)}
        cited = [fact.text_seq for fact in shown if _is_cited(fact, entities, message.text.casefold())]
        if cited:
            tx.passages.count_use(graph.fact_archive_id, cited)


def _shown(events: Sequence[StoredEvent], before_seq: int) -> Sequence[FactId]:
    """Return the facts that a run's recall and searches showed before a message, each once."""
    found: dict[str, None] = {}
    for stored in events:
        match stored.event:
            case MemoryRecalled(sources=sources):
                found |= dict.fromkeys(source["id"] for source in sources if source["kind"] == "fact")
            case MessageAdded(message=Message() as message) if message.seq < before_seq:
                texts = [result.text for result in message.results if result.name == "search_facts"]
                found |= dict.fromkeys(id_ for text in texts for id_ in _FACT.findall(text))
    return [FactId(id_) for id_ in found]


def _is_cited(fact: Fact, entities: Mapping[int, Entity], text: str) -> bool:
    """Return whether a text names what a fact says of its subject; or the subject, if the fact is about the user."""
    names = [_names(entities[seq]) for seq in (fact.object, fact.subject) if seq in entities]
    return any(_holds(text, name) for name in next(filter(None, names), ()))


def _names(entity: Entity) -> Sequence[str]:
    """Return the names of an entity; none of the user, whom answers call "you"."""
    names = (entity.name, *entity.aliases)
    return () if USER in names or entity.name == PLACEHOLDER else names


def _holds(text: str, name: str) -> bool:
    """Return whether a text holds a name as a word of its own; scripts without spaces have no such words."""
    word = re.escape(name.casefold())
    return re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", text) is not None
