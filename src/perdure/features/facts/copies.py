"""A graph in an agent file: facts with all their versions, read from one agent and given to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from perdure.core.errors import InvalidInput
from perdure.core.forgetting.redaction import NO_RELATION
from perdure.core.ids import AgentId, EntityId, EpisodeId, FactId, Ids
from perdure.core.messages import Message
from perdure.core.passages import Passage
from perdure.domain.conversations.agent_copies import CopyPart, FileRows
from perdure.domain.conversations.copy_values import HiddenText
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.units.communities import Changes
from perdure.features.facts.units.graphs import check_fact, check_scope, entity_text, graph_of_agent
from perdure.features.facts.units.turns import place_of
from perdure.features.facts.values.facts import Entity, Episode, Fact, FactRule
from perdure.features.facts.values.settings import check_graph_settings
from perdure.storage.tx import Tx

T = TypeVar("T")
_ALL = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsCopy:
    """What a graph knows, as an agent file holds it.

    Attributes:
        facts: all versions of facts, also of deleted and corrected ones, in order.
        episodes: their `message_seq` is the place among the turns that the file holds.
        sources: pairs: `first_seq` of a fact, and the number of an episode that supports it.
        passages_read: from how many passages of the file facts were extracted.
    """

    entities: Sequence[Entity] = ()
    facts: Sequence[Fact] = ()
    episodes: Sequence[Episode] = ()
    sources: Sequence[tuple[int, int]] = ()
    rules: Sequence[FactRule] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    passages_read: int = 0


def count_turns_read(tx: Tx, agent_id: AgentId, conversation_seq: int, turns: Sequence[Message | Passage]) -> int:
    """Return from how many of these messages of a conversation, or passages, see `last_seq`, facts were extracted."""
    last_read = tx.of(Episodes).last_seq(agent_id, conversation_seq)
    return sum(turn.seq <= last_read for turn in turns)


def copy_facts(tx: Tx, agent_id: AgentId, rows: FileRows) -> FactsCopy:
    """What an agent's graph knows; its sources are given by their index among the turns and passages of the file."""
    turns, passages = [one for of_line in rows.turns.values() for one in of_line], [*rows.passages.values()]
    number = tx.archives.get(passages[0].archive_id).number if passages else 0
    passages_read = count_turns_read(tx, agent_id, -1 - number, passages) if passages else 0
    if (graph := tx.of(Graphs).find_by_agent(agent_id)) is None:
        return FactsCopy(passages_read=passages_read)
    places: dict[str, int] = {one.id: place for place, one in enumerate(turns)}
    held = {*places, *(passage.id for passage in passages)}
    episodes = [
        replace(one, message_seq=places.get(one.ref), conversation_seq=None, agent_id=None)
        for one in tx.of(Episodes).list(graph.id, limit=_ALL)
        if one.text is not None or one.ref in held
    ]
    seqs = [int(row[0]) for row in tx.of(Facts).columns(graph.id)]
    all_facts, rules = tx.of(Facts).list_by_seqs(graph.id, seqs), tx.of(Graphs).list_rules(graph.id)
    gone = {  # what they were derived from was changed, deleted or forgotten; nobody decided that they are wrong
        first
        for first, newest in {one.first_seq: one for one in all_facts}.items()
        if newest.change == "retract" or (newest.is_deletion and newest.origin.get("type") == "correction")
    }
    facts = [fact for fact in all_facts if fact.first_seq not in gone]
    # A name that only such a fact has goes with it.
    unnamed = {end for one in all_facts if one.first_seq in gone for end in (one.subject, one.object)}
    unnamed -= {end for one in facts for end in (one.subject, one.object)} | {rule.entity or 0 for rule in rules}
    sources = tx.of(Facts).sources(graph.id, [fact.seq for fact in facts if fact.seq == fact.first_seq])
    numbers = {episode.seq for episode in episodes}
    return FactsCopy(
        entities=[one for one in tx.of(Entities).list(graph.id, limit=_ALL, merged=True) if one.seq not in unnamed],
        facts=facts,
        episodes=episodes,
        sources=[(first, seq) for first, of_fact in sources.items() for seq in of_fact if seq in numbers],
        rules=rules,
        settings=graph.settings,
        passages_read=passages_read,
    )


def restore_facts(tx: Tx, agent_id: AgentId, copy: FactsCopy, rows: FileRows, ids: Ids, at: datetime) -> Sequence[str]:
    """Give a new agent the facts of a copy, with their history; return what is left out: nothing. `rows` are the turns
    and passages that the agent was given. Raises: InvalidInput: the copy contradicts itself; TooMany: a scope is too
    large."""
    turns, passages = [one for of_line in rows.turns.values() for one in of_line], rows.passages
    for seq, count in rows.turns_read.items():
        if (of_line := rows.turns[seq]) and count > 0:
            tx.of(Episodes).put_last_seq(agent_id, seq, of_line[min(count, len(of_line)) - 1].seq, at=at)
    if passages and copy.passages_read > 0:
        last = list(passages.values())[min(copy.passages_read, len(passages)) - 1]
        tx.of(Episodes).put_last_seq(agent_id, -1 - tx.archives.get(last.archive_id).number, last.seq, at=at)
    if not (copy.entities or copy.rules or copy.settings):
        return ()
    for scope in (one.scope for some in (copy.episodes, copy.facts) for one in some):
        check_scope(tx, scope)
    graph = graph_of_agent(tx, agent_id, ids=ids, at=at)
    check_graph_settings(copy.settings)
    tx.of(Graphs).put(replace(graph, settings=copy.settings, updated_at=at))
    stored = tx.of(Entities).add(
        [
            replace(one, id=EntityId(ids.new("entity")), graph_id=graph.id, community_seq=None, fact_count=0)
            for one in copy.entities
        ]
    )
    tx.passages.add([entity_text(graph, one, at=at) for one in stored if one.merged_into is None])
    entities = dict(zip((one.seq for one in copy.entities), (one.seq for one in stored), strict=True))
    for one in stored:
        if one.merged_into is not None:
            tx.of(Entities).put(replace(one, merged_into=_lookup(entities, one.merged_into, "an entity")))
    for rule in copy.rules:
        entity = None if rule.entity is None else _lookup(entities, rule.entity, "an entity")
        tx.of(Graphs).add_rule(replace(rule, graph_id=graph.id, entity=entity))
    places = range(len(turns))
    kept = [one for one in copy.episodes if one.text is not None or one.ref in passages or one.message_seq in places]
    new = [replace(_relink_episode(one, turns, passages, ids), graph_id=graph.id) for one in kept]
    episodes = dict(zip((one.seq for one in kept), tx.of(Episodes).add(new), strict=True))
    fact_ids = {one.id: FactId(ids.new("fact")) for one in copy.facts}
    named = {str(old): str(now) for old, now in fact_ids.items()}
    named |= {one.id: episodes[one.seq].id for one in kept}
    versions = [
        check_fact(
            replace(
                one,
                id=fact_ids[one.id],
                graph_id=graph.id,
                subject=_lookup(entities, one.subject, "an entity"),
                object=_lookup(entities, one.object, "an entity"),
                origin=_origin(one.origin, named),
            )
        )
        for one in sorted(copy.facts, key=lambda one: (one.seq != one.first_seq, one.seq))
    ]
    begun = [version for version in versions if version.seq == version.first_seq]
    added = tx.of(Facts).add(graph, [replace(one, first_seq=0) for one in begun])
    firsts = {one.seq: now.seq for one, now in zip(begun, added, strict=True)}
    later = [replace(one, first_seq=_lookup(firsts, one.first_seq, "a fact")) for one in versions[len(begun) :]]
    believed = [one for one in (*added, *later) if one.expired_at is None]
    if len({one.first_seq for one in believed}) < len(believed):
        raise InvalidInput("two versions of one fact are believed at once")
    believed = [one for one in (*added, *tx.of(Facts).add(graph, later)) if one.expired_at is None]
    pairs = [(firsts[fact], episodes[one].seq) for fact, one in copy.sources if fact in firsts and one in episodes]
    tx.of(Facts).add_sources(graph.id, pairs)
    Changes(added=believed).update_communities(tx, graph, at=at)
    return ()


def hide_in_facts(facts: dict[str, Any], text: HiddenText) -> None:
    """Replace a text in the facts of a file, given as JSON; facts first believed after it was forgotten keep it."""
    # Forgetting writes a last version itself, so what counts is when a fact was first believed.
    old = {item["first_seq"] for item in facts["facts"] if item["seq"] == item["first_seq"] and text.is_old(item)}
    since = [item for item in facts["facts"] if item["first_seq"] not in old and text.redactor.finds(item["text"])]
    named = {item[end] for item in since if item["expired_at"] is None for end in ("subject", "object")}
    facts["settings"] = text.redactor.redact_choices(facts["settings"])
    text.redact(facts["facts"], ("scope", "origin"), text.is_old)
    text.redact(facts["episodes"], ("text", "scope"), text.is_old)
    text.redact(facts["rules"], ("text", "entity_name"), text.is_old)
    past = [item for item in facts["facts"] if item["expired_at"] is not None]
    text.redact(past, ("text",), lambda item: item["first_seq"] in old)
    unnamed = [item for item in facts["entities"] if item["seq"] not in named]
    text.redact(unnamed, ("name", "summary", "aliases", "attributes"), text.is_old)
    for item in (*facts["facts"], *facts["rules"]):
        if (item.get("first_seq") in old or text.is_old(item)) and text.redactor.finds(item["relation"]):
            item["relation"] = NO_RELATION


FACTS = CopyPart(name="facts", kind=FactsCopy, hide=hide_in_facts, copy=copy_facts, restore=restore_facts)


def _relink_episode(episode: Episode, turns: Sequence[Message], passages: Mapping[str, Passage], ids: Ids) -> Episode:
    """An episode of a file, tied to the turn or passage of the new agent that it comes from, or with its own text."""
    new = EpisodeId(ids.new("episode"))
    if episode.text is not None:
        return replace(episode, id=new, ref=new, message_seq=None)
    if episode.ref in passages:
        return replace(episode, id=new, ref=passages[episode.ref].id, message_seq=None)
    turn = turns[episode.message_seq or 0]
    return replace(episode, id=new, ref=turn.id, **place_of(turn))


def _origin(origin: Mapping[str, Any], named: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the origin of a version with new ids for those that are keys of `named`, without run and message."""
    kept = {name: value for name, value in origin.items() if name not in ("message_id", "run_id", "step_id")}
    return kept | {key: named.get(str(kept[key]), "") for key in ("ended_by", "episode_id") if key in kept}


def _lookup(numbers: Mapping[int, T], number: int, what: str) -> T:
    """Return the value of a number that the file names; `what` says for the error what has it. Raises: InvalidInput."""
    if number not in numbers:
        raise InvalidInput(f"the facts of the file name {what} of number {number}, which it does not hold")
    return numbers[number]
