"""Taking a text out of a graph: facts that hold it are no longer believed, and in the store it is replaced."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.forgetting.redaction import Redactor
from perdure.core.forgetting.values import CorrectionItem, Key, Place
from perdure.core.ids import AgentId, ArchiveId, EpisodeId, FactId, GraphId
from perdure.core.sources import TRUSTED, MemoryWrite, Source
from perdure.domain.texts import TextKeeper
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.units.deltas import forgotten_texts, told_texts
from perdure.features.facts.units.graphs import (
    change_fact,
    delete_episodes,
    delete_facts,
    restore_fact,
    said_of,
    settle,
)
from perdure.features.facts.units.lines import own_version
from perdure.features.facts.values.facts import FACT_STATES, Episode, Fact, FactFilter, Graph
from perdure.storage.tx import TEXT_TABLES, Tx

PAGE = 200
WAITING_MAX = 10_000
CORRECTION: Mapping[str, Any] = {"type": "correction"}
"""Who deletes facts when a person takes a text out. No agent is told of it, for the text must not come back."""


def believed_facts(tx: Tx, graph: Graph, text_seq: int) -> Sequence[Fact]:
    """The facts with this text that are believed."""
    return tx.of(Facts).list_by_texts(graph.id, [text_seq], where=FactFilter(states=FACT_STATES))


def forget_facts(tx: Tx, graph: Graph, text_seq: int, *, at: datetime) -> CorrectionItem | None:
    """Stop believing the facts with this text; None: nobody does."""
    deleted = delete_facts(tx, graph, believed_facts(tx, graph, text_seq), origin=CORRECTION, at=at)
    if not deleted:
        return None
    return _facts_item(graph, deleted)


def forget_news(tx: Tx, agent_id: AgentId, redactor: Redactor) -> Sequence[CorrectionItem]:
    """Keep the text out of the message that tells the agent of changed facts: nobody believes what it says of them, but
    the agent was not told yet."""
    graph = tx.of(Graphs).find_by_agent(agent_id)
    if graph is None:
        return ()
    told = {seq for seq, text in told_texts(tx, graph.id).items() if redactor.finds(text)}
    return [_facts_item(graph, (), texts=[seq]) for seq in sorted(told - forgotten_texts(tx, graph.id))]


def forget_episode(tx: Tx, graph: Graph, episode: Episode, *, at: datetime) -> CorrectionItem:
    """Delete an episode, and what is known from it alone; return what undoing that needs."""
    first_seqs = tx.of(Facts).first_seqs(graph.id, episode.seq)
    retracted = delete_episodes(tx, graph, [episode], at=at)
    return _facts_item(graph, retracted.lost, episode, first_seqs, again=retracted.again)


def forget_waiting(tx: Tx, agent_id: AgentId, redactor: Redactor, *, at: datetime) -> Sequence[CorrectionItem]:
    """Delete the texts that were given to the agent, still wait for extraction, and hold the text."""
    graph = tx.of(Graphs).find_by_agent(agent_id)
    if graph is None:
        return ()
    waiting = tx.of(Episodes).list_waiting(graph.id, limit=WAITING_MAX)
    return [forget_episode(tx, graph, one, at=at) for one in waiting if redactor.finds(one.text or "")]


def restore_facts(tx: Tx, item: CorrectionItem, *, at: datetime) -> str:
    """Believe forgotten facts again, with the episode that supported them; return why some are not."""
    graph, before, problem = tx.of(Graphs).get(GraphId(item.id)), json.loads(item.before), ""
    if before["episode"] is not None:
        times = {name: datetime.fromisoformat(before["episode"][name]) for name in _TIMES if before["episode"][name]}
        (episode,) = tx.of(Episodes).add([Episode(**{**before["episode"], **times})])
        tx.of(Facts).add_sources(graph.id, [(first_seq, episode.seq) for first_seq in before["first_seqs"]])
    for id_ in before["facts"]:
        fact = tx.of(Facts).get(FactId(id_))
        if fact.expired_at is None:
            problem = f"{id_} was changed again"
        else:
            restore_fact(tx, graph, fact.id, origin=own_version(tx.of(Facts).versions(fact.id)).origin, at=at)
    for id_ in before.get("again", ()):
        versions = tx.of(Facts).versions(FactId(id_))
        *_, was, again = [one for one in versions if "ended_by" not in one.origin]
        if again.change != "restore" or again.expired_at is not None:
            problem = f"{id_} was changed again"
        elif was.is_deletion:
            delete_facts(tx, graph, versions[-1:], origin=was.origin, at=at)
        else:
            fact = change_fact(tx, graph, versions[-1], said_of(was), change=was.change, origin=was.origin, at=at)
            settle(tx, graph, [fact], at=at)
    return problem


_TIMES = ("occurred_at", "created_at", "extracted_at")


def _facts_item(
    graph: Graph,
    facts: Sequence[Fact],
    episode: Episode | None = None,
    first_seqs: Sequence[int] = (),
    texts: Sequence[int] = (),
    again: Sequence[Fact] = (),
) -> CorrectionItem:
    """Return what believing facts again needs, and the support of an episode that was deleted with them; no agent is
    told of their texts, nor of these. `again`: facts that are as they were before the episode."""
    before = {
        "facts": [fact.id for fact in facts],
        "episode": None if episode is None else asdict(episode),
        "first_seqs": list(first_seqs),
        "again": [fact.id for fact in again],
        "texts": sorted({*texts, *(fact.text_seq for fact in facts)}),
    }
    return CorrectionItem(kind="fact", id=graph.id, before=json.dumps(before, default=datetime.isoformat))


def erase_texts(
    tx: Tx, graph: Graph, archive_id: ArchiveId, redactor: Redactor, after: Key | None, *, at: datetime
) -> tuple[int, Key | None]:
    """Take the text out of the next texts of a graph. Facts that held it are no longer believed."""
    page = tx.mentions.scan("passages", archive_id, redactor, after=after, limit=PAGE)
    for passage in tx.passages.list_by_seqs(archive_id, [int(found.key[0]) for found in page.found]):
        text = redactor.redact(passage.text)
        if archive_id == graph.fact_archive_id:
            delete_facts(tx, graph, believed_facts(tx, graph, passage.seq), origin=CORRECTION, at=at)
            tx.of(Facts).put_text(graph, passage.seq, text)
        else:
            source = redactor.redact_fields(dict(passage.source))
            tx.passages.put(replace(passage, text=text, source=source))
    return len(page.found), page.after


def erase_entities(tx: Tx, graph_id: GraphId, redactor: Redactor, after: Key | None) -> tuple[int, Key | None]:
    """Take the text out of the next entities, and of the names by which they are found."""
    page = tx.mentions.scan("entities", graph_id, redactor, after=after, limit=PAGE)
    for entity in tx.of(Entities).list_by_seqs(graph_id, [int(found.key[0]) for found in page.found]):
        tx.of(Entities).put(
            replace(
                entity,
                name=redactor.redact(entity.name),
                summary=redactor.redact(entity.summary),
                aliases=tuple(dict.fromkeys(map(redactor.redact, entity.aliases))),
                attributes=redactor.redact_value(dict(entity.attributes)),
            )
        )
    return len(page.found), page.after


def erase_episodes(
    tx: Tx, graph_id: GraphId, redactor: Redactor, after: Key | None, *, at: datetime
) -> tuple[int, Key | None]:
    """Delete the next episodes with the text, and what is known from them alone."""
    page = tx.mentions.scan("episodes", graph_id, redactor, after=after, limit=PAGE)
    episodes = tx.of(Episodes).list_by_seqs(graph_id, [int(found.key[0]) for found in page.found])
    delete_episodes(tx, tx.of(Graphs).get(graph_id), episodes, at=at)
    tx.sources.delete(graph_id, [episode.id for episode in episodes])
    return len(page.found), page.after


def erase_episodes_of(tx: Tx, agent_id: AgentId, seqs: Sequence[int], *, at: datetime) -> None:
    """Delete the episodes of messages, and what is known from them alone."""
    by_graph: dict[GraphId, list[int]] = {}
    for episode in tx.of(Episodes).list_by_messages(agent_id, seqs):
        by_graph.setdefault(episode.graph_id, []).append(episode.seq)
    for graph_id, numbers in by_graph.items():
        episodes = tx.of(Episodes).list_by_seqs(graph_id, numbers)
        delete_episodes(tx, tx.of(Graphs).get(graph_id), episodes, at=at)
        tx.sources.delete(graph_id, [episode.id for episode in episodes])


class FactTexts:
    """The texts of facts, of their entities, and of what they were extracted from."""

    kind = "fact"

    def describe(self, tx: Tx, table: str, owner_id: str, key: Key) -> tuple[Place | None, str, str] | None:
        if TEXT_TABLES[table].owners == "graphs":
            return None, owner_id, tx.of(Graphs).get(GraphId(owner_id)).name
        graph = tx.of(Graphs).find_by_archive(ArchiveId(owner_id)) if table == "passages" else None
        if graph is None:
            return None
        facts = believed_facts(tx, graph, int(key[0])) if owner_id == graph.fact_archive_id else ()
        return ("fact", facts[0].id, graph.name) if facts else ("graph", graph.id, graph.name)

    def forget(self, tx: Tx, archive_id: ArchiveId, seq: int, at: datetime) -> CorrectionItem | None:
        graph = tx.of(Graphs).find_by_archive(archive_id)
        return None if graph is None else forget_facts(tx, graph, seq, at=at)

    def forget_unread(
        self, tx: Tx, agent_id: AgentId, redactor: Redactor, at: datetime, *, news: bool
    ) -> Sequence[CorrectionItem]:
        told = forget_news(tx, agent_id, redactor) if news else ()
        return [*told, *forget_waiting(tx, agent_id, redactor, at=at)]

    def forget_message(self, tx: Tx, agent_id: AgentId, message_seq: int, at: datetime) -> Sequence[CorrectionItem]:
        episodes = tx.of(Episodes).list_by_messages(agent_id, [message_seq])
        return [forget_episode(tx, tx.of(Graphs).get(episode.graph_id), episode, at=at) for episode in episodes]

    def restore(self, tx: Tx, item: CorrectionItem, at: datetime) -> str:
        return restore_facts(tx, item, at=at)

    def erase(
        self, tx: Tx, table: str, owner_id: str, redactor: Redactor, after: Key | None, at: datetime
    ) -> tuple[int, Key | None] | None:
        match table:
            case "passages" if (graph := tx.of(Graphs).find_by_archive(ArchiveId(owner_id))) is not None:
                return erase_texts(tx, graph, ArchiveId(owner_id), redactor, after, at=at)
            case "entities":
                return erase_entities(tx, GraphId(owner_id), redactor, after)
            case "episodes":
                return erase_episodes(tx, GraphId(owner_id), redactor, after, at=at)
        return None

    def erase_messages(self, tx: Tx, agent_id: AgentId, seqs: Sequence[int], at: datetime) -> None:
        erase_episodes_of(tx, agent_id, seqs, at=at)

    def list_alone(self, tx: Tx, write: MemoryWrite) -> Sequence[str]:
        return _facts_of(tx, write)

    def take_back(self, tx: Tx, write: MemoryWrite, at: datetime) -> CorrectionItem | None:
        graph = tx.of(Graphs).get(GraphId(write.owner_id))
        with suppress(NotFound):
            return forget_episode(tx, graph, tx.of(Episodes).get(EpisodeId(write.ref)), at=at)
        return None

    def find_write(self, tx: Tx, ref: str) -> tuple[str, datetime]:
        episode = tx.of(Episodes).get(EpisodeId(ref))
        return episode.graph_id, episode.created_at

    def read_write(self, tx: Tx, write: MemoryWrite) -> tuple[str, str, bool]:
        graph, facts = tx.of(Graphs).get(GraphId(write.owner_id)), ()  # type: tuple[Graph, Sequence[Fact]]
        with suppress(NotFound):  # its episode is gone
            facts = tx.of(Facts).list_by_episodes(graph.id, [tx.of(Episodes).get(EpisodeId(write.ref)).seq])
        return graph.name, "\n".join(fact.text for fact in facts), bool(facts)

    def list_sources(self, tx: Tx, ids: Sequence[str]) -> Sequence[Source]:
        facts = tx.of(Facts).list_by_ids([FactId(id_) for id_ in ids])
        return [source for one in facts for source in sources_of_facts(tx, tx.of(Graphs).get(one.graph_id), [one])]


TEXTS: TextKeeper = FactTexts()


def sources_of_facts(tx: Tx, graph: Graph, facts: Sequence[Fact]) -> tuple[Source, ...]:
    """Return what these facts say from outside."""
    untrusted = [fact for fact in facts if fact.trust not in TRUSTED]
    found: dict[Source, None] = {}
    for fact in untrusted:
        seqs = tx.of(Facts).sources(graph.id, [fact.first_seq])[fact.first_seq]
        episodes = tx.of(Episodes).list_by_seqs(graph.id, seqs)
        writes = tx.sources.list_by_refs(graph.id, [episode.id for episode in episodes])
        sources = [one.source for write in writes for one in write.sources if not one.source.is_trusted]
        found |= dict.fromkeys(sources or [Source.of(fact.trust, fact.id)])
    return tuple(found)


def _facts_of(tx: Tx, write: MemoryWrite) -> Sequence[str]:
    """The ids of the facts that only this episode supports and that are believed."""
    try:
        episode = tx.of(Episodes).get(EpisodeId(write.ref))
    except NotFound:  # its message or passage was deleted
        return ()
    facts = tx.of(Facts).list_by_episodes(episode.graph_id, [episode.seq])
    sources = tx.of(Facts).sources(episode.graph_id, [fact.first_seq for fact in facts])
    return [fact.id for fact in facts if list(sources[fact.first_seq]) == [episode.seq]]
