"""What an answer cites of what its run recalled or found: facts whose names it repeats, and passages whose words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from perdure.core.events import MemoryRecalled, MessageAdded, StoredEvent
from perdure.core.ids import FactId, PassageId
from perdure.core.messages import Message
from perdure.core.runs import RunKey
from perdure.core.text.forms import match_form
from perdure.core.text.words import parse_query, stems
from perdure.domain.archives.passages import count_passages
from perdure.features.facts.tables import Entities, Facts
from perdure.features.facts.values.extraction import USER
from perdure.features.facts.values.facts import Entity, Fact, Graph
from perdure.storage.tx import Tx

_FACT = re.compile(r'"id": "(fact-[0-9a-f-]{36})"')
_PASSAGE = re.compile(r'"id": "(passage-[0-9a-f-]{36})"')
_SEARCHES = frozenset({"search_facts", "archival_memory_search", "search_memory"})
_SENTENCE_END = re.compile(r"[.!?。！？]\s*|\n+")
_CITED_SHARE = 0.5
"""The share of a sentence's telling words that an answer and its question repeat if the answer cites the sentence."""
_READ_CHARS = 20_000
"""How much of a passage, from its beginning, is compared with answers."""
PLACEHOLDER = "Memory"
"""The object of a sentence that a person added without naming one."""


def count_citations(tx: Tx, graph: Graph | None, messages: Sequence[Message]) -> None:
    """Count a use of each of the graph's facts, and of each passage, that an answer among the messages cites."""
    answers = [(one, one.run_seq) for one in messages if one.role == "assistant" and one.run_seq is not None]
    if not answers:
        return
    agent_id, run_seqs = answers[0][0].agent_id, [run_seq for _, run_seq in answers]
    showing = {run_seq for run_seq, kinds in tx.events.kinds(agent_id, run_seqs).items() if _may_show(kinds)}
    for message, run_seq in answers:
        if run_seq not in showing:
            continue
        facts, passages = _shown_before(tx.events.list(RunKey(agent_id, run_seq)), message.seq)
        if graph is not None:
            _count_facts(tx, graph, facts, message)
        places = tx.passages.find_places(passages)
        if places:
            questions = [one.text for one in messages if one.role == "user" and one.run_seq == run_seq]
            count_passages(
                tx, [id_ for id_ in places if _is_repeated(tx.passages.get(id_).text, message.text, questions)]
            )


def _count_facts(tx: Tx, graph: Graph, ids: Sequence[FactId], message: Message) -> None:
    """Count one use of each of these facts that belongs to the graph and that the message cites."""
    shown = [fact for fact in tx.of(Facts).list_by_ids(ids) if fact.graph_id == graph.id]
    entities = tx.of(Entities).of_facts(graph.id, shown)
    cited = [fact.text_seq for fact in shown if _is_cited(fact, entities, match_form(message.text))]
    if cited:
        tx.passages.count(graph.fact_archive_id, cited, "recalls")


def _may_show(kinds: Sequence[str]) -> bool:
    """Return whether a run with events of these kinds, in order, recalled something, or may have answered after a
    search. After a search a message was added between its start and its last step; a run that goes on after an approval
    begins so."""
    has_started = has_more = False
    for kind in kinds:
        has_started = has_started or kind == "run.started"
        has_more = has_more or (has_started and kind == "message.added")
        if kind == "memory.recalled" or (kind == "step.started" and has_more):
            return True
    return False


def _shown_before(events: Sequence[StoredEvent], before_seq: int) -> tuple[Sequence[FactId], Sequence[PassageId]]:
    """Return the ids of facts and passages that recall and searches of a run showed before message `before_seq`."""
    facts: dict[str, None] = {}
    passages: dict[str, None] = {}
    for stored in events:
        match stored.event:
            case MemoryRecalled(sources=sources):
                facts |= dict.fromkeys(source["id"] for source in sources if source["kind"] == "fact")
                passages |= dict.fromkeys(source["id"] for source in sources if source["kind"] == "passage")
            case MessageAdded(message=Message() as message) if message.seq < before_seq:
                texts = [result.text for result in message.results if result.name in _SEARCHES]
                facts |= dict.fromkeys(id_ for text in texts for id_ in _FACT.findall(text))
                passages |= dict.fromkeys(id_ for text in texts for id_ in _PASSAGE.findall(text))
    return [FactId(id_) for id_ in facts], [PassageId(id_) for id_ in passages]


def _is_repeated(text: str, answer: str, questions: Sequence[str]) -> bool:
    """Return whether an answer repeats a sentence of a passage that the questions did not already contain: it has one
    of its telling words that no question has, and answer and questions together have most of them."""
    said, known = set(stems(answer)), {word for question in questions for word in stems(question)}
    for sentence in _SENTENCE_END.split(text[:_READ_CHARS]):
        telling = {token for clause in parse_query(sentence).clauses for token in clause.tokens}
        common = telling & (said | known)
        if common & said - known and len(common) >= max(min(2, len(telling)), _CITED_SHARE * len(telling)):
            return True
    return False


def _is_cited(fact: Fact, entities: Mapping[int, Entity], text: str) -> bool:
    """Return whether a text in matching form names the object of a fact; the subject, if the object is the user."""
    names = [_names(entities[seq]) for seq in (fact.object, fact.subject) if seq in entities]
    return any(_holds(text, name) for name in next(filter(None, names), ()))


def _names(entity: Entity) -> Sequence[str]:
    """Return the names by which an answer may cite an entity; none for the user, who is "you" in answers."""
    names = (entity.name, *entity.aliases)
    return () if USER in names or entity.name == PLACEHOLDER else names


def _holds(text: str, name: str) -> bool:
    """Return whether a text in matching form has a name as a word, or anywhere in scripts without spaces."""
    word = re.escape(match_form(name))
    return re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", text) is not None
