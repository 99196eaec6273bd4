"""What is known that a text may concern: the entities that it names, and facts about them."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from perdure.core.text.words import stems
from perdure.features.facts.tables import Entities, Facts, Graphs
from perdure.features.facts.values.extraction import ReadBatch
from perdure.features.facts.values.facts import Entity, Fact, FactFilter, Graph, ScopePairs
from perdure.features.facts.values.settings import load_graph_settings
from perdure.storage.tx import Tx

NAME_WORDS = 4
"""The longest name that is looked up, in words; of scripts without spaces, in pairs of characters."""
NAMES_MAX = 1_500
"""The most names that are looked up of one text."""
KNOWN_ENTITIES, KNOWN_FACTS, ENTITY_FACTS = 30, 60, 20
"""The most entities and facts that are shown, and facts of one entity."""
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_CJK = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]+")


def names_in(text: str, *, limit: int = NAMES_MAX) -> Sequence[str]:
    """Return every run of words in a text that could be a name, at most `limit`, each once."""
    names: dict[str, None] = {}
    text = unicodedata.normalize("NFC", text)
    words = [(match.start(), match.end()) for match in _WORD.finditer(text)]
    for index in range(len(words)):
        for end in range(index, min(index + NAME_WORDS, len(words))):
            if end > index and not text[words[end - 1][1] : words[end][0]].isspace():
                break
            names[text[words[index][0] : words[end][1]]] = None
    for run in _CJK.findall(text):
        for size in range(1, 2 * NAME_WORDS + 1):
            names.update(dict.fromkeys(run[start : start + size] for start in range(len(run) - size + 1)))
    return list(names)[:limit]


def known_entities(tx: Tx, graph: Graph, texts: Sequence[str], *, limit: int = KNOWN_ENTITIES) -> Sequence[Entity]:
    """Load the entities whose names or aliases occur in these texts, those of the last text first."""
    names = dict.fromkeys(name for text in reversed(texts) for name in names_in(text))
    found = tx.of(Entities).find_by_names(graph.id, list(names))
    seqs = list(dict.fromkeys(seq for name in names for seq in found[name]))[:limit]
    return tx.of(Entities).list_by_seqs(graph.id, seqs)


def with_known(
    tx: Tx, graph: Graph | None, batch: ReadBatch, user: str, *, scope: ScopePairs = (), known: bool = True
) -> ReadBatch:
    """Return the batch with the entities and facts that its turns may mean, and the rules and types of the graph.

    Args:
        graph: None: nothing is known yet, and the batch is returned unchanged.
        user: the name of the user who speaks.
        scope: only facts with these names and values, so that no user's text changes what another one said.
        known: whether entities and facts are loaded; rules and types always are.
    """
    if graph is None:
        return batch
    settings = load_graph_settings(graph.settings)
    batch = replace(
        batch,
        rules=tx.of(Graphs).list_rules(graph.id),
        schema=settings.schema,
        prompt=settings.prompt,
        reflect=settings.reflect,
    )
    if not known:
        return batch
    texts = [user, *(turn.text for turn in (*batch.context, *batch.turns))]
    speakers = dict.fromkeys((user, *(turn.speaker for turn in batch.turns)))
    entities = known_entities(tx, graph, [*texts, *speakers])
    shown = _known_facts(tx, graph, entities, texts, scope)
    named = {entity.seq for entity in entities}
    others = {seq for fact in shown for seq in (fact.subject, fact.object)} - named
    return replace(batch, entities=[*entities, *tx.of(Entities).list_by_seqs(graph.id, sorted(others))], facts=shown)


def _known_facts(
    tx: Tx, graph: Graph, entities: Sequence[Entity], texts: Sequence[str], scope: ScopePairs
) -> Sequence[Fact]:
    """Load known facts about entities that may matter for the texts, at most `ENTITY_FACTS` of one and `KNOWN_FACTS` in
    all: first facts between two of the entities or with a relation that the texts mention, then the newest of each
    relation, so that old facts can be ended too."""
    named = {entity.seq for entity in entities}
    words = {stem for text in texts for stem in stems(text)}
    is_mentioned = functools.cache(lambda relation: not words.isdisjoint(stems(relation.replace("_", " "))))
    seqs: dict[int, None] = {}
    for entity in entities:
        found = tx.of(Facts).list_newest_by_relation(
            graph.id, entity.seq, where=FactFilter(scope=scope), most=ENTITY_FACTS
        )
        order = {
            seq: (not ({subject, object_} <= named or is_mentioned(relation)), place)
            for seq, subject, object_, relation, place in found
        }
        seqs |= dict.fromkeys(sorted(order, key=lambda seq: order[seq])[:ENTITY_FACTS])
    return sorted(tx.of(Facts).list_by_seqs(graph.id, list(seqs)[:KNOWN_FACTS]), key=lambda fact: fact.seq)
