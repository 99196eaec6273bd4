"""Graphs, entities, facts and the episodes that facts come from.

A fact has two time axes. `valid_at` and `invalid_at` say when it was true in the world, `created_at` and `expired_at`
when Perdure believed it. A change of a fact writes a new version and expires the one before, so that what was believed
on any day can be read back.

Views over facts, such as profiles and timelines, are built anew whenever they are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from perdure.core.ids import AgentId, ArchiveId, EntityId, EpisodeId, FactId, GraphId, OrgId
from perdure.core.sources import TrustLabel
from perdure.core.text.forms import in_name_form
from perdure.core.text.reprs import short_repr
from perdure.search.ranking.hits import Why

FactState = Literal["active", "faded", "proposed", "archived"]
"""`faded`: out of automatic recall; searches find it. `archived`: only a search that asks for it finds it. `proposed`:
waits until a person accepts it."""

FACT_STATES: Final[tuple[FactState, ...]] = ("active", "faded", "proposed", "archived")
KNOWN_STATES: Final[tuple[FactState, ...]] = ("active", "faded")

FactChange = Literal[
    "add", "update", "supersede", "delete", "retract", "restore", "edit", "fade", "archive", "merge", "accept", "join"
]
"""Why a version was written. `supersede`: another fact ended it. `delete`: it is believed no longer, and `retract`: its
last source was deleted; such a version ends as it begins. `edit`: a person corrected it. `merge`: near-duplicates
became one sentence. `join`: a person said that two entities are one, or took that back."""

RELATION: Final = re.compile(r"[A-Z][A-Z0-9_]{1,59}")
"""The form of relations, SCREAMING_SNAKE_CASE."""

EpisodeKind = Literal["message", "json", "text"]
ScopePairs = tuple[tuple[str, str], ...]

ENTITY_TYPES: Final = ("Person", "Organization", "Location", "Event", "Object", "Concept", "Preference")
"""The types that entities have unless a graph's settings name others."""


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("name")
class Graph:
    """What is known: entities and the facts between them. Agents that share a graph know the same.

    Attributes:
        number: its place among all graphs of the store, in order of creation.
        fact_archive_id: the archive with one passage for each distinct text of a fact, which search reads.
        entity_archive_id: the archive with one passage for each entity and each community.
        settings: as `settings.py` reads them.
        version: grows with every change.
    """

    __repr__ = short_repr("id", "name", "version")

    id: GraphId
    org_id: OrgId
    number: int = 0
    name: str
    fact_archive_id: ArchiveId
    entity_archive_id: ArchiveId
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A person, a place or another thing that facts are about.

    Attributes:
        seq: its number in the graph, from 1.
        fact_count: how many facts name it now.
        community_seq: the number of its community, which is that of the entity that the community began with.
        merged_into: the number of the entity that it is the same as, which has its facts and names; only old versions
            of facts name it then.
    """

    __repr__ = short_repr("id", "name", "type", "fact_count")

    id: EntityId
    graph_id: GraphId
    seq: int = 0
    name: str
    type: str
    summary: str = ""
    aliases: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fact_count: int = 0
    community_seq: int | None = None
    created_at: datetime
    updated_at: datetime
    merged_into: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("scope")
class Fact:
    """One version of a fact: subject, relation and object, in words and with its times.

    Attributes:
        id: the fact's id, which all of its versions have.
        seq: the number of this version in the order in which the graph's versions were written, from 1.
        first_seq: the number of the fact's first version.
        text_seq: the number of the passage with its text in the graph's archive.
        subject, object: the numbers of two different entities.
        relation: in SCREAMING_SNAKE_CASE.
        type: one of the graph's fact types; None: it has none.
        rating: how much it matters, 0 to 1.
        valid_at, invalid_at: from when until when it was true; None: unknown, or still true.
        created_at, expired_at: from when until when it was believed; `expired_at` None: it still is.
        scope: such as `user_id`, `agent_id` and `run_id`, for programs that keep several users in one graph.
        origin: who wrote the version: `type` (extraction, person, program, policy, system), `id` of a person, `model`,
            and the `run_id`, `step_id` and `message_id` of what an extraction read.
    """

    __repr__ = short_repr("id", "text", "valid_at", "invalid_at", "expired_at", "state")

    id: FactId
    graph_id: GraphId
    seq: int = 0
    first_seq: int = 0
    text: str
    text_seq: int = 0
    subject: int
    object: int
    relation: str
    type: str | None = None
    rating: float = 0.5
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    created_at: datetime
    expired_at: datetime | None = None
    state: FactState = "active"
    change: FactChange = "add"
    trust: TrustLabel = "user"
    scope: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_of_person(self) -> bool:
        """Whether a person wrote this version."""
        return self.origin.get("type") == "person"

    @property
    def is_decision(self) -> bool:
        """Whether a person or their program wrote this version, also by forgetting a text: extraction respects it."""
        return self.origin.get("type") in ("person", "program", "correction")

    @property
    def is_deletion(self) -> bool:
        """Whether this version only says that the fact was deleted, when and by whom. It was never believed."""
        return self.change in ("delete", "retract")

    def is_true_at(self, at: datetime) -> bool:
        """Return whether the fact was true at this time, as far as is known."""
        return (self.valid_at is None or self.valid_at <= at) and (self.invalid_at is None or at < self.invalid_at)


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("scope")
class Episode:
    """What was said or given, from which facts are derived.

    Attributes:
        seq: its number in the graph, from 1.
        ref: the id of the message or passage; a JSON document or a text has its own id here.
        text: the JSON document or the text; None: the message or passage of `ref` has it.
        conversation_seq, message_seq: the numbers of a message and of its conversation, among those of `agent_id`.
        trust: what kind of source says it.
        extracted_at: when its facts were stored; None: it waits.
        tries: how often it could not be extracted.
    """

    __repr__ = short_repr("id", "kind", "ref", "text", "trust")

    id: EpisodeId
    graph_id: GraphId
    seq: int = 0
    kind: EpisodeKind
    ref: str
    text: str | None = None
    agent_id: AgentId | None = None
    conversation_seq: int | None = None
    message_seq: int | None = None
    trust: TrustLabel = "user"
    scope: Mapping[str, str] = field(default_factory=dict)
    occurred_at: datetime
    created_at: datetime
    extracted_at: datetime | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRule:
    """Which facts must not be remembered: those that fulfil each condition that is given.

    Attributes:
        text: words that the fact has.
        entity: the number of an entity that it is about; `entity_name` is read with it.
        relation: in SCREAMING_SNAKE_CASE.
    """

    __repr__ = short_repr("seq", "text", "entity_name", "relation")

    graph_id: GraphId
    seq: int = 0
    text: str = ""
    entity: int | None = None
    entity_name: str = ""
    relation: str | None = None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Community:
    """Entities that many facts connect, with a summary made in the background.

    Attributes:
        seq: the number of the entity that it began with.
        size: how many entities it has.
        summary_due: whether its members or their facts changed since the summary was made.
    """

    graph_id: GraphId
    seq: int
    name: str
    summary: str = ""
    size: int = 0
    summary_due: bool = True
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("scope")
class FactFilter:
    """Which facts: all conditions hold.

    Attributes:
        at: true at this time.
        since, until: true at some time between these.
        ended_at: true no longer at this time.
        as_of: believed at this time; None: now.
        entities: the numbers of entities, one of which is subject or object.
        relations, types: the fact has one of them; empty: any.
        states: the fact has one of them; by default those of what is known.
        trust: the kinds of sources whose facts count; None: all.
        scope: names with values that the fact's scope has.
    """

    at: datetime | None = None
    since: datetime | None = None
    until: datetime | None = None
    ended_at: datetime | None = None
    as_of: datetime | None = None
    entities: tuple[int, ...] = ()
    relations: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    min_rating: float = 0.0
    states: tuple[FactState, ...] = KNOWN_STATES
    trust: tuple[TrustLabel, ...] | None = None
    scope: ScopePairs = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCounts:
    """What a graph holds now, and what extraction left out and took.

    Attributes:
        facts: those that are believed.
        waiting: turns, passages and texts that wait for extraction.
        dropped: what extraction left out: reason -> how often.
        calls: model calls of extraction, which used `input_tokens` and `output_tokens` together.
    """

    facts: int = 0
    entities: int = 0
    episodes: int = 0
    waiting: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


EventKind = Literal["begin", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactEvent:
    """The time at which a fact began (`begin`) or ceased (`end`) to be true."""

    at: datetime
    kind: EventKind
    fact: Fact

    @property
    def tags(self) -> tuple[str, ...]:
        """The fact's relation, and its type if it has one."""
        return (self.fact.relation, *filter(None, (self.fact.type,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEntry:
    """One value of a slot, such as `work.title`. `fact` says it; None: it is the name of the user's entity."""

    slot: str
    value: str
    fact: Fact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is known about a user now, by slots.

    Attributes:
        user: None: nothing is known about a user yet.
        entries: in the order of the slots, within a slot the best rated and newest first.
        tokens: the size of `text`.
        left_out: how many more entries did not fit the budget.
    """

    user: Entity | None = None
    entries: Sequence[ProfileEntry] = ()
    tokens: int = 0
    left_out: int = 0

    @property
    def slots(self) -> Mapping[str, Sequence[str]]:
        """Slot -> its values."""
        slots: dict[str, list[str]] = {}
        for entry in self.entries:
            slots.setdefault(entry.slot, []).append(entry.value)
        return slots

    @property
    def text(self) -> str:
        """The profile as text, a line for each slot."""
        return "\n".join(f"- {slot}: {'; '.join(values)}" for slot, values in self.slots.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class FactContext:
    """What is known, packed into one text for any program.

    Attributes:
        text: profile, facts and events under a heading each; facts and events end in a number, as [1].
        tokens: the size of `text`.
        facts, events: those that stand in the text, in its order.
        sources: a fact of the text -> the episodes that support it. Number n of the text is the n-th fact.
    """

    text: str = ""
    tokens: int = 0
    profile: Profile = field(default_factory=Profile)
    facts: Sequence[Fact] = ()
    events: Sequence[FactEvent] = ()
    sources: Mapping[FactId, Sequence[Episode]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunityHit:
    """A community that a search found, with its entities of most facts. Scores compare within one search only."""

    community: Community
    members: Sequence[Entity]
    score: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FactNetwork:
    """Entities and the facts that connect them.

    Attributes:
        entities: those of most facts, these first; each is named by one of `facts`.
        facts: the newest, of any time.
        is_whole: whether nothing that is known was left out.
    """

    entities: Sequence[Entity] = ()
    facts: Sequence[Fact] = ()
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class FactHit:
    """A fact that a search found, with its entities. Scores compare within one search only; `why` is set on request."""

    __repr__ = short_repr("score", "fact")

    fact: Fact
    score: float
    subject: Entity
    object: Entity
    why: Why | None = None
