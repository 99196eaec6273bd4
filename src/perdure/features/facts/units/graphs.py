"""The graph of an agent, and changes of what a graph knows.

Every change writes new versions and expires the ones before, in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final, Literal, NamedTuple, TypedDict, cast

from perdure.core.errors import InvalidInput, NotFound, VersionConflict
from perdure.core.ids import AgentId, ArchiveId, EntityId, EpisodeId, FactId, GraphId, Ids, PassageId, derived_id, is_id
from perdure.core.passages import Archive, Passage
from perdure.core.sources import TRUSTED, MemoryWrite, Source, TrustLabel, WriteSource
from perdure.core.text.reprs import attributes, describe_value
from perdure.domain.corrections import MEMORY_CORRECTED
from perdure.domain.values import check_item_limits
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.units.communities import Changes
from perdure.features.facts.units.lines import lines_of, own_version
from perdure.features.facts.values.extraction import USER, ExtractedEntity
from perdure.features.facts.values.facts import RELATION, Entity, Episode, Fact, FactChange, FactState, Graph
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntity(ExtractedEntity):
    """An entity to add, or what is new about a known one.

    Args:
        known: the number of the known entity; None: the one with this name, if exactly one fits; 0: a new one in any
            case.
    """


class FactFields(TypedDict, total=False):
    """The fields of a fact that a new version can change. A missing field stays; of a new fact it has its default."""

    text: str
    subject: int
    object: int
    relation: str
    type: str | None
    rating: float
    valid_at: datetime | None
    invalid_at: datetime | None
    state: FactState
    trust: TrustLabel
    scope: Mapping[str, str]


ALIASES_MAX = 20
"""The most aliases of an entity; further ones are not kept."""


def create_graph(tx: Tx, name: str, *, ids: Ids, at: datetime, settings: Mapping[str, Any] | None = None) -> Graph:
    """Add an empty graph with two archives, for texts of facts and of entities. Raises: TooMany: a long name."""
    tx.limits.check("name_limit_chars", len(name))
    own: Any = {"org_id": tx.org_id, "created_at": at, "updated_at": at}
    facts, entities = (
        tx.archives.add(Archive(id=ArchiveId(ids.new("archive")), name=f"{holds} of {name}", **own)).id
        for holds in ("facts", "entities")
    )
    own |= {"fact_archive_id": facts, "entity_archive_id": entities}
    return tx.of(Graphs).add(Graph(id=GraphId(ids.new("graph")), name=name, settings=settings or {}, **own))


def graph_of_agent(tx: Tx, agent_id: AgentId, *, ids: Ids, at: datetime) -> Graph:
    """Return the agent's graph, which is created if it has none. Raises: NotFound."""
    tx.agents.lock(agent_id)
    if (graph := tx.of(Graphs).find_by_agent(agent_id)) is not None:
        return graph
    graph = create_graph(tx, tx.agents.get(agent_id).name, ids=ids, at=at)
    tx.of(Graphs).attach(agent_id, graph.id)
    return graph


def zone_of(tx: Tx, owner: AgentId | GraphId, default: str) -> str:
    """Return the time zone of an agent, or of the first agent of a graph, else `default`. Raises: NotFound."""
    agents = [AgentId(owner)] if is_id("agent", owner) else tx.of(Graphs).list_agents(GraphId(owner), limit=1)
    return tx.agents.get(agents[0]).timezone if agents else default


def store_entities(tx: Tx, graph: Graph, new: Sequence[NewEntity], *, ids: Ids, at: datetime) -> Sequence[Entity]:
    """Store entities; return them as stored, in the order of `new`. One with `known`, or whose name exactly one entity
    of a fitting type has, is merged into that entity. Raises: NotFound: `known` does not exist."""
    named = tx.of(Entities).find_by_names(graph.id, [one.name for one in new])
    all_seqs = {seq for one in new for seq in (*named[one.name], one.known) if seq}
    known = {**tx.of(Entities).list_current(graph.id, sorted(all_seqs))}
    known |= {entity.seq: entity for entity in known.values()}
    found = [_same_entity(one, [known[seq] for seq in named[one.name]]) for one in new]
    seqs = [known[seq].seq if seq in known else seq for seq in found]
    stored: dict[int, Entity] = {}
    added: dict[str, int] = {}
    fresh: list[Entity] = []
    for index, (one, seq) in enumerate(zip(new, seqs, strict=True)):
        if seq is not None:
            if seq not in known:
                raise NotFound("entity", str(seq))
            known[seq] = stored[index] = _merge_entity(tx, graph, known[seq], one, at=at)
        elif one.name not in added:
            added[one.name] = len(fresh)
            own: Any = attributes(one, "name", "type", "summary", "aliases", "attributes")
            id_ = EntityId(ids.new("entity"))
            fresh.append(Entity(id=id_, graph_id=graph.id, created_at=at, updated_at=at, **own))
    there = tx.of(Entities).add(fresh)
    tx.passages.add([entity_text(graph, entity, at=at) for entity in there])
    return [stored[index] if index in stored else there[added[one.name]] for index, one in enumerate(new)]


def add_facts(
    tx: Tx,
    graph: Graph,
    new: Sequence[FactFields],
    *,
    origin: Mapping[str, Any],
    ids: Ids,
    at: datetime,
    episodes: Sequence[Sequence[Episode]] = (),
    together: Changes | None = None,
) -> Sequence[Fact]:
    """Add facts, and links to the episodes that support each; return them.

    Args:
        new: the fields of each fact.
        origin: who writes them, as `Fact.origin`.
        episodes: for each of `new` the episodes that support it; empty: none.
        together: gains the changes, whose communities the caller updates at its end; None: they are updated here.
    Raises: InvalidInput, NotFound.
    """
    versions = [
        check_fact(Fact(id=FactId(ids.new("fact")), graph_id=graph.id, created_at=at, origin=origin, **one))
        for one in new
    ]
    facts = tx.of(Facts).add(graph, _about_current(tx, graph, versions))
    pairs = [
        (fact.first_seq, episode.seq) for fact, supports in zip(facts, episodes, strict=False) for episode in supports
    ]
    if pairs:
        tx.of(Facts).add_sources(graph.id, pairs)
    _move_entities(tx, graph, together, Changes(added=facts), at=at)
    return facts


def change_fact(
    tx: Tx,
    graph: Graph,
    fact: Fact,
    changes: FactFields,
    *,
    change: FactChange,
    origin: Mapping[str, Any],
    at: datetime,
    together: Changes | None = None,
) -> Fact:
    """Write a new version of a fact with these fields, believed from now on; return it. `together` is as of
    `add_facts`. Raises: InvalidInput, NotFound; VersionConflict: `fact` is not its newest version."""
    if (newest := tx.of(Facts).get(fact.id)).seq != fact.seq:
        raise VersionConflict(fact.id, expected=fact.seq, found=newest.seq)
    fact = newest
    if fact.state == "faded" and change in ("edit", "update") and "state" not in changes:  # somebody cares for it
        changes = {**changes, "state": "active"}
    at = max(at, fact.expired_at or fact.created_at)  # a clock that goes back must not turn a version's times around
    check_scope(tx, changes.get("scope", {}))
    version = check_fact(replace(fact, **changes, seq=0, created_at=at, expired_at=None, change=change, origin=origin))
    (version,) = _about_current(tx, graph, [version])
    expired = tx.of(Facts).expire(graph.id, [fact.seq], at=at)
    changed = tx.of(Facts).add(graph, [version])[0]
    new = Changes(expired=[*expired, changed]) if expired else Changes(added=[changed])
    _move_entities(tx, graph, together, new, at=at)
    return changed


def delete_facts(
    tx: Tx,
    graph: Graph,
    facts: Sequence[Fact],
    *,
    origin: Mapping[str, Any],
    change: Literal["delete", "retract"] = "delete",
    at: datetime,
    together: Changes | None = None,
) -> Sequence[Fact]:
    """Stop believing these facts; return those that were believed. Their versions stay; a last one says who deleted
    them (`origin`), and `restore_fact` undoes it. `together`: as in `add_facts`."""
    expired = tx.of(Facts).expire(graph.id, [fact.seq for fact in facts], at=at)
    ends = [max(at, fact.created_at) for fact in expired]
    tx.of(Facts).add(
        graph,
        [
            replace(fact, seq=0, created_at=end, expired_at=end, change=change, origin=origin)
            for fact, end in zip(expired, ends, strict=True)
        ],
    )
    _move_entities(tx, graph, together, Changes(expired=expired), at=at)
    settle(tx, graph, expired, at=at, together=together)
    note_correction(tx, graph)
    return expired


def note_correction(tx: Tx, graph: Graph) -> None:
    """Tell features that something which the agents of a graph remembered was changed, or is back."""
    for agent_id in tx.of(Graphs).list_agents(graph.id):
        MEMORY_CORRECTED(tx, agent_id)


def settle(
    tx: Tx, graph: Graph, facts: Sequence[Fact], *, joined: bool = False, at: datetime, together: Changes | None = None
) -> None:
    """End each fact where the next one of its line begins, in all lines of these facts (see `lines_of`). `joined` and
    `together`: as in `lines_of` and `add_facts`."""
    for line in lines_of(tx, graph, facts, joined=joined):
        for place, after in zip_longest(line, line[1:]):
            fact, own = place.fact, place.own
            end, origin = own.invalid_at, own.origin
            if after is not None and (end is None or end > after.begin):
                end, origin = after.begin, {**after.own.origin, "ended_by": after.fact.id}
            by, is_so = origin.get("ended_by"), (fact.valid_at, fact.invalid_at) == (own.valid_at, end)
            if not is_so or fact.origin.get("ended_by", by) != by:
                times: FactFields = {"valid_at": own.valid_at, "invalid_at": end}
                change: FactChange = "supersede" if by else "restore"
                change_fact(tx, graph, fact, times, change=change, origin=origin, at=at, together=together)


def _move_entities(tx: Tx, graph: Graph, together: Changes | None, new: Changes, *, at: datetime) -> None:
    """Update communities after the changes `new`; or add these to `together`, whose communities are updated later."""
    if together is None:
        new.update_communities(tx, graph, at=at)
    else:
        together.extend(new)


def restore_fact(tx: Tx, graph: Graph, fact_id: FactId, *, origin: Mapping[str, Any], at: datetime) -> Fact:
    """Believe a deleted fact again, as it was before; return its newest version. Raises: NotFound."""
    versions = tx.of(Facts).versions(fact_id)
    if versions[-1].expired_at is not None:
        own = own_version(versions)
        times: FactFields = {"valid_at": own.valid_at, "invalid_at": own.invalid_at}
        settle(tx, graph, [change_fact(tx, graph, versions[-1], times, change="restore", origin=origin, at=at)], at=at)
        note_correction(tx, graph)
    return tx.of(Facts).get(fact_id)


class Retraction(NamedTuple):
    """What was done to facts whose source is gone: some are believed no longer, others are again as they were before
    the source changed or denied them."""

    lost: Sequence[Fact]
    restored: Sequence[Fact]


def delete_episodes(tx: Tx, graph: Graph, episodes: Sequence[Episode], *, at: datetime) -> Retraction:
    """Delete episodes, and retract what nothing else supports, as `retract_facts`; return what was retracted."""
    retracted = retract_facts(tx, graph, episodes, at=at)
    tx.of(Episodes).delete(graph.id, [episode.seq for episode in episodes])
    return retracted


def retract_facts(tx: Tx, graph: Graph, episodes: Sequence[Episode], *, at: datetime) -> Retraction:
    """Stop believing the facts that only these episodes support, and take back how they changed other facts. The
    episodes support nothing then. A fact that a person has added, changed or restored stays: the person supports it."""
    seqs = [episode.seq for episode in episodes]
    named = {first for seq in seqs for first in tx.of(Facts).first_seqs(graph.id, seq)}
    unsupported = set(tx.of(Facts).remove_sources(graph.id, seqs))
    history = tx.of(Facts).histories(graph.id, sorted(named))
    lost = [
        versions[-1]
        for first, versions in history.items()
        if first in unsupported and not any(version.is_of_person and not version.is_deletion for version in versions)
    ]
    expired = delete_facts(tx, graph, lost, origin={"type": "system"}, change="retract", at=at)
    others = tx.of(Facts).histories(graph.id, sorted(named - {fact.first_seq for fact in expired})).values()
    gone = {episode.id for episode in episodes}
    restored = [one for one in (_restore_before(tx, graph, all_, gone, at) for all_ in others) if one]
    settle(tx, graph, restored, at=at)
    return Retraction(expired, restored)


_CONTENT: Final = ("text", "subject", "object", "relation", "type", "rating", "valid_at", "invalid_at", "trust")


def _restore_before(tx: Tx, graph: Graph, versions: Sequence[Fact], gone: Collection[str], at: datetime) -> Fact | None:
    """Write a fact, whose versions are given oldest first, as it was before the episodes `gone` changed it, and return
    the new version. None: they did not change it, or somebody has changed it since."""
    in_force: list[Fact] = []
    for one in (version for version in versions if "ended_by" not in version.origin):
        if one.change == "restore":  # the versions that it took back say nothing
            origins = [other.origin for other in in_force]
            del in_force[origins.index(one.origin) if one.origin in origins else len(origins) :]
        in_force.append(one)
    before = next((one for one in reversed(in_force) if one.origin.get("episode_id") not in gone), None)
    if before is None or before.seq == in_force[-1].seq or before.is_deletion:
        return None
    return change_fact(tx, graph, versions[-1], content_of(before), change="restore", origin=before.origin, at=at)


def content_of(version: Fact) -> FactFields:
    """Return the fields of a version that say something of the world, to be written again."""
    return cast(FactFields, {name: getattr(version, name) for name in _CONTENT})


def add_episode(
    tx: Tx,
    graph: Graph,
    kind: str,
    text: str,
    *,
    trust: TrustLabel,
    scope: Mapping[str, str],
    ids: Ids,
    occurred_at: datetime,
    at: datetime,
) -> Episode:
    """Add a text or, with kind `json`, a JSON document, for extraction in the background; return it. `scope`: whose
    facts it holds, such as `user_id`; `occurred_at`: when it was said. Raises: InvalidInput, TooMany: of its scope."""
    check_scope(tx, scope)
    id_ = EpisodeId(ids.new("episode"))
    episode = Episode(
        id=id_,
        graph_id=graph.id,
        kind="json" if kind == "json" else "text",
        ref=id_,
        text=text,
        trust=trust,
        scope=scope,
        occurred_at=occurred_at,
        created_at=at,
    )
    (added,) = tx.of(Episodes).add([episode])
    if trust not in TRUSTED:
        sources = (WriteSource(Source.of(trust, f"text {id_}")),)
        tx.sources.add([MemoryWrite(kind="fact", owner_id=graph.id, ref=id_, sources=sources, created_at=at)])
    return added


def check_scope(tx: Tx, scope: Mapping[str, str]) -> None:
    """Check that a scope is names with texts, and how many and how long they are. Raises: InvalidInput, TooMany."""
    texts = [*scope, *scope.values()] if isinstance(scope, Mapping) else [None]
    if not all(isinstance(one, str) for one in texts):
        raise InvalidInput(f"scope is {describe_value(scope)}: give names with texts, such as {{'user_id': 'ada'}}")
    ids = [text for name, text in scope.items() if name.endswith("_id")]
    check_item_limits(tx.limits, names={"scope": max((*scope, *ids), key=len, default="")}, scope=scope)


def check_fact(fact: Fact) -> Fact:
    """Check the fields of a fact, and return it. Raises: InvalidInput."""
    if not fact.text.strip():
        raise InvalidInput("the fact is empty: give a sentence, such as 'Ada lives in Turin.'")
    if len(fact.text) > FACT_MAX_CHARS:
        raise InvalidInput(f"the fact has {len(fact.text):,} characters, the limit is {FACT_MAX_CHARS:,}")
    if RELATION.fullmatch(fact.relation) is None:
        raise InvalidInput(f"relation is {fact.relation!r:.80}: write it in capitals, such as LIVES_IN")
    if fact.subject == fact.object:
        raise InvalidInput("the fact has one entity as subject and object: give two")
    if not 0 <= fact.rating <= 1:
        raise InvalidInput(f"rating is {fact.rating!r:.80}: give a number from 0 to 1")
    if fact.valid_at is not None and fact.invalid_at is not None and fact.invalid_at < fact.valid_at:
        raise InvalidInput(
            f"the fact ends at {fact.invalid_at:%Y-%m-%d %H:%M}, before it begins at {fact.valid_at:%Y-%m-%d %H:%M}"
        )
    return fact


FACT_MAX_CHARS = 2_000


def _about_current(tx: Tx, graph: Graph, facts: Sequence[Fact]) -> Sequence[Fact]:
    """Return facts with merged entities replaced by those that they were merged into. Raises: NotFound: an entity that
    does not exist; InvalidInput: subject and object were merged."""
    seqs = {seq for fact in facts for seq in (fact.subject, fact.object)}
    found = tx.of(Entities).list_current(graph.id, sorted(seqs))
    if missing := seqs - found.keys():
        raise NotFound("entity", str(min(missing)))
    if all(entity.seq == seq for seq, entity in found.items()):
        return facts
    return [check_fact(replace(fact, subject=found[fact.subject].seq, object=found[fact.object].seq)) for fact in facts]


GENERAL_TYPE = "Concept"
VAGUE_TYPES = frozenset({GENERAL_TYPE, "Object", "Preference"})


def type_fits(one: str, other: str) -> bool:
    """Return whether one entity can have both types: they are equal, or one is vague."""
    return one == other or not VAGUE_TYPES.isdisjoint((one, other))


def _same_entity(new: NewEntity, named: Sequence[Entity]) -> int | None:
    """Return the number of the stored entity that `new` is, of those with its name; None: it has to be added."""
    if new.known is not None:
        return new.known or None
    fitting = [entity.seq for entity in named if type_fits(entity.type, new.type)]
    return fitting[0] if len(fitting) == 1 else None


def _merge_entity(tx: Tx, graph: Graph, known: Entity, new: NewEntity, *, at: datetime) -> Entity:
    """Store what is new about a known entity, and return it. The user, once named, keeps "User" as an alias."""
    name = new.name if known.name == USER or new.is_new_name else known.name
    others = [one for one in dict.fromkeys((*known.aliases, *new.aliases, known.name, new.name)) if one != name]
    if len(others) > ALIASES_MAX:  # a name that it had itself, which comes last, stays
        others = [*others[: ALIASES_MAX - 1], others[-1]]
    merged = replace(
        known,
        name=name,
        type=known.type if known.name != USER or new.type == "Concept" else new.type,
        aliases=tuple(others),
        summary=new.summary or known.summary,
        attributes={**known.attributes, **new.attributes},
    )
    if merged == known:
        return known
    merged = replace(merged, updated_at=at)
    tx.of(Entities).put(merged)
    tx.passages.put(entity_text(graph, merged, at=at))
    return merged


def entity_text(graph: Graph, entity: Entity, *, at: datetime) -> Passage:
    """Return the passage by which search finds an entity: its names, type and summary."""
    return Passage(
        id=PassageId(derived_id("passage", entity.id)),
        archive_id=graph.entity_archive_id,
        text=". ".join(filter(None, (", ".join((entity.name, *entity.aliases)), entity.type, entity.summary))),
        tags=("entity",),
        source={"type": "entity", "entity_id": entity.id, "entity_seq": entity.seq},
        created_at=at,
        occurred_at=at,
    )
