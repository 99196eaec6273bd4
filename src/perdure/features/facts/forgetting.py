"""Taking a text out of a graph: facts that hold it are no longer believed, and in the store it is replaced."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.forgetting.corrections import CorrectionItem, Key, Place
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import AgentId, ArchiveId, EpisodeId, FactId, GraphId, is_id
from perdure.core.sources import TRUSTED, MemoryWrite, Source
from perdure.domain.texts import TextKeeper
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.units.deltas import changed_texts, forgotten_texts
from perdure.features.facts.units.graphs import (
    change_fact,
    content_of,
    delete_episodes,
    delete_facts,
    restore_fact,
    settle,
)
from perdure.features.facts.units.lines import own_version, sources_of
from perdure.features.facts.values.facts import FACT_STATES, Entity, Episode, Fact, FactFilter, Graph
from perdure.storage.tx import Tx

WAITING_MAX = 10_000
CORRECTION: Mapping[str, Any] = {"type": "correction"}
"""The origin of versions that are written when a person takes a text out. Agents are not told of these."""
_TIMES = ("occurred_at", "created_at", "extracted_at")


class FactTexts:
    """Finds a text in facts, their entities and their episodes, and takes it out. Implements `TextKeeper`."""

    kind = "fact"

    def describe(self, tx: Tx, table: str, owner_id: str, key: Key) -> tuple[Place | None, str, str] | None:
        """Return place, id and name of what a row with a text belongs to, by its key; None: to no graph."""
        if is_id("graph", owner_id):
            return None, owner_id, tx.of(Graphs).get(GraphId(owner_id)).name
        graph = tx.of(Graphs).find_by_archive(ArchiveId(owner_id)) if table == "passages" else None
        if graph is None:
            return None
        facts = _facts_with_text(tx, graph, int(key[0])) if owner_id == graph.fact_archive_id else ()
        return ("fact", facts[0].id, graph.name) if facts else ("graph", graph.id, graph.name)

    def forget(self, tx: Tx, archive_id: ArchiveId, seq: int, at: datetime) -> CorrectionItem | None:
        """Delete the believed facts whose text is passage `seq`; return what undoing that needs; None: no such fact."""
        if (graph := tx.of(Graphs).find_by_archive(archive_id)) is None:
            return None
        deleted = delete_facts(tx, graph, _facts_with_text(tx, graph, seq), origin=CORRECTION, at=at)
        return _facts_item(graph, deleted) if deleted else None

    def forget_unread(
        self, tx: Tx, agent_id: AgentId, redactor: Redactor, at: datetime, *, news: bool
    ) -> Sequence[CorrectionItem]:
        """Delete waiting episodes with the text, with `news` also notices; return the data that undoes it."""
        if (graph := tx.of(Graphs).find_by_agent(agent_id)) is None:
            return ()
        texts = changed_texts(tx, graph.id) if news else {}
        matching = {seq for seq, text in texts.items() if redactor.finds(text)}
        # Nobody believes what it says of them, but the agent was not told yet.
        items = [_facts_item(graph, (), texts=[seq]) for seq in sorted(matching - forgotten_texts(tx, graph.id))]
        waiting = tx.of(Episodes).list_waiting(graph.id, limit=WAITING_MAX)
        return items + [_forget_episode(tx, one, at=at) for one in waiting if redactor.finds(one.text or "")]

    def forget_message(self, tx: Tx, agent_id: AgentId, message_seq: int, at: datetime) -> Sequence[CorrectionItem]:
        """Delete the episodes of a message, and what is known from it alone; return what undoing that needs."""
        return [_forget_episode(tx, one, at=at) for one in tx.of(Episodes).list_by_messages(agent_id, [message_seq])]

    def restore(self, tx: Tx, item: CorrectionItem, at: datetime) -> str:
        """Undo what an item of a correction says was forgotten; return why a part stays so, or an empty text."""
        graph, before, problem = tx.of(Graphs).get(GraphId(item.id)), json.loads(item.before), ""
        if (episode_fields := before["episode"]) is not None:
            times = {name: datetime.fromisoformat(episode_fields[name]) for name in _TIMES if episode_fields[name]}
            (episode,) = tx.of(Episodes).add([Episode(**{**episode_fields, **times})])
            tx.of(Facts).add_sources(graph.id, [(first_seq, episode.seq) for first_seq in before["first_seqs"]])
        for id_ in before["facts"]:
            fact = tx.of(Facts).get(FactId(id_))
            if fact.expired_at is None:
                problem = f"{id_} was changed again"
            else:
                restore_fact(tx, graph, fact.id, origin=own_version(tx.of(Facts).versions(fact.id)).origin, at=at)
        for id_ in before.get("again", ()):
            if not _change_again(tx, graph, FactId(id_), at=at):
                problem = f"{id_} was changed again"
        return problem

    def erase(self, tx: Tx, table: str, owner_id: str, redactor: Redactor, seqs: Sequence[int], at: datetime) -> bool:
        """Take the text out of rows of a table for good; return False for a table that holds nothing of facts."""
        match table:
            case "passages" if (graph := tx.of(Graphs).find_by_archive(ArchiveId(owner_id))) is not None:
                _erase_texts(tx, graph, ArchiveId(owner_id), seqs, redactor, at=at)
            case "entities":
                for entity in tx.of(Entities).list_by_seqs(GraphId(owner_id), seqs):
                    tx.of(Entities).put(_redacted_entity(entity, redactor))
            case "episodes":
                _erase_episodes(tx, GraphId(owner_id), seqs, at=at)
            case _:
                return False
        return True

    def erase_messages(self, tx: Tx, agent_id: AgentId, seqs: Sequence[int], at: datetime) -> None:
        """Delete the episodes of these messages for good, and what is known from them alone."""
        by_graph: dict[GraphId, list[int]] = {}
        for episode in tx.of(Episodes).list_by_messages(agent_id, seqs):
            by_graph.setdefault(episode.graph_id, []).append(episode.seq)
        for graph_id, numbers in by_graph.items():
            _erase_episodes(tx, graph_id, numbers, at=at)

    def list_alone(self, tx: Tx, write: MemoryWrite) -> Sequence[str]:
        """Return the ids of the believed facts that only the episode of this write supports."""
        try:
            episode = tx.of(Episodes).get(EpisodeId(write.ref))
        except NotFound:  # its message or passage was deleted
            return ()
        facts = tx.of(Facts).list_by_episodes(episode.graph_id, [episode.seq])
        sources = tx.of(Facts).sources(episode.graph_id, [fact.first_seq for fact in facts])
        return [fact.id for fact in facts if list(sources[fact.first_seq]) == [episode.seq]]

    def take_back(self, tx: Tx, write: MemoryWrite, at: datetime) -> CorrectionItem | None:
        """Delete the episode of a write, and what is known from it alone; None: it is deleted already."""
        with suppress(NotFound):
            return _forget_episode(tx, tx.of(Episodes).get(EpisodeId(write.ref)), at=at)
        return None

    def find_write(self, tx: Tx, ref: str) -> tuple[str, datetime]:
        """Return the graph's id of the episode `ref`, and when it was added. Raises: NotFound."""
        episode = tx.of(Episodes).get(EpisodeId(ref))
        return episode.graph_id, episode.created_at

    def read_write(self, tx: Tx, write: MemoryWrite) -> tuple[str, str, bool]:
        """Return the graph's name, the believed facts of a write as lines of text, and whether there are some."""
        graph, facts = tx.of(Graphs).get(GraphId(write.owner_id)), ()  # type: tuple[Graph, Sequence[Fact]]
        with suppress(NotFound):  # its episode is gone
            facts = tx.of(Facts).list_by_episodes(graph.id, [tx.of(Episodes).get(EpisodeId(write.ref)).seq])
        return graph.name, "\n".join(fact.text for fact in facts), bool(facts)

    def list_sources(self, tx: Tx, ids: Sequence[str]) -> Sequence[Source]:
        """Return the sources from outside of the facts with these ids."""
        facts = tx.of(Facts).list_by_ids([FactId(id_) for id_ in ids])
        return [source for fact in facts for source in sources_of_facts(tx, tx.of(Graphs).get(fact.graph_id), [fact])]


TEXTS: TextKeeper = FactTexts()


def sources_of_facts(tx: Tx, graph: Graph, facts: Sequence[Fact]) -> tuple[Source, ...]:
    """Return the sources from outside of these facts of a graph, each once."""
    untrusted = [fact for fact in facts if fact.trust not in TRUSTED]
    by_fact = sources_of(tx, graph.id, untrusted)
    found: dict[Source, None] = {}
    for fact in untrusted:
        episodes = by_fact[fact.first_seq]
        writes = tx.sources.list_by_refs(graph.id, [episode.id for episode in episodes])
        sources = [source.source for write in writes for source in write.sources if not source.source.is_trusted]
        found |= dict.fromkeys(sources or [Source.of(fact.trust, fact.id)])
    return tuple(found)


def _facts_with_text(tx: Tx, graph: Graph, text_seq: int) -> Sequence[Fact]:
    """Return the believed facts whose text is the passage of this number."""
    return tx.of(Facts).list_by_texts(graph.id, [text_seq], where=FactFilter(states=FACT_STATES))


def _forget_episode(tx: Tx, episode: Episode, *, at: datetime) -> CorrectionItem:
    """Delete an episode, and what is known from it alone; return what undoing that needs."""
    graph = tx.of(Graphs).get(episode.graph_id)
    first_seqs = tx.of(Facts).first_seqs(graph.id, episode.seq)
    retracted = delete_episodes(tx, graph, [episode], at=at)
    return _facts_item(graph, retracted.lost, episode, first_seqs, restored=retracted.restored)


def _facts_item(
    graph: Graph,
    facts: Sequence[Fact],
    episode: Episode | None = None,
    first_seqs: Sequence[int] = (),
    texts: Sequence[int] = (),
    restored: Sequence[Fact] = (),
) -> CorrectionItem:
    """Return what undoing needs, after a text was taken out of a graph.

    Args:
        episode: the episode that was deleted; it supported the facts with `first_seqs`.
        texts: numbers of texts of which agents are not told, beside those of `facts`.
        restored: facts that were changed back to how they were before the episode.
    """
    before = {
        "facts": [fact.id for fact in facts],
        "episode": None if episode is None else asdict(episode),
        "first_seqs": list(first_seqs),
        "again": [fact.id for fact in restored],
        "texts": sorted({*texts, *(fact.text_seq for fact in facts)}),
    }
    return CorrectionItem(kind="fact", id=graph.id, before=json.dumps(before, default=datetime.isoformat))


def _change_again(tx: Tx, graph: Graph, fact_id: FactId, *, at: datetime) -> bool:
    """Write a fact again as an episode, now back, had changed it; return False if it was changed meanwhile."""
    versions = tx.of(Facts).versions(fact_id)
    *_, was, again = [version for version in versions if "ended_by" not in version.origin]
    if again.change != "restore" or again.expired_at is not None:
        return False
    if was.is_deletion:
        delete_facts(tx, graph, versions[-1:], origin=was.origin, at=at)
    else:
        fact = change_fact(tx, graph, versions[-1], content_of(was), change=was.change, origin=was.origin, at=at)
        settle(tx, graph, [fact], at=at)
    return True


def _erase_texts(
    tx: Tx, graph: Graph, archive_id: ArchiveId, seqs: Sequence[int], redactor: Redactor, *, at: datetime
) -> None:
    """Replace the text in passages of a graph's archive; facts that held it are believed no longer."""
    for passage in tx.passages.list_by_seqs(archive_id, seqs):
        text = redactor.redact(passage.text)
        if archive_id == graph.fact_archive_id:
            delete_facts(tx, graph, _facts_with_text(tx, graph, passage.seq), origin=CORRECTION, at=at)
            tx.of(Facts).put_text(graph, passage.seq, text)
        else:
            source = redactor.redact_fields(dict(passage.source))
            tx.passages.put(replace(passage, text=text, source=source))


def _redacted_entity(entity: Entity, redactor: Redactor) -> Entity:
    """Return an entity without the text, also in its names."""
    return replace(
        entity,
        name=redactor.redact(entity.name),
        summary=redactor.redact(entity.summary),
        aliases=tuple(dict.fromkeys(map(redactor.redact, entity.aliases))),
        attributes=redactor.redact_value(dict(entity.attributes)),
    )


def _erase_episodes(tx: Tx, graph_id: GraphId, seqs: Sequence[int], *, at: datetime) -> None:
    """Delete episodes, what is known from them alone, and the records of their sources."""
    episodes = tx.of(Episodes).list_by_seqs(graph_id, seqs)
    delete_episodes(tx, tx.of(Graphs).get(graph_id), episodes, at=at)
    tx.sources.delete(graph_id, [episode.id for episode in episodes])
