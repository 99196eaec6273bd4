"""Facts, entities and rules, and what is derived from facts: what clients send, and the shapes of answers.

No part of Letta's API.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from typing_extensions import TypedDict

from perdure.core.errors import InvalidInput
from perdure.core.facts.values import (
    CommunityHit,
    Entity,
    FactContext,
    FactEvent,
    FactRule,
    FactState,
    Graph,
    GraphCounts,
    Profile,
)
from perdure.core.ids import AgentId, GraphId
from perdure.domain.facts.context import context_facts
from perdure.domain.facts.graphs import FACT_MAX_CHARS, FactFields
from perdure.domain.facts.settings import load_graph_settings
from perdure.domain.forgetting import Memory, TidyItem, kind_of
from perdure.library.services.facts.facts import NAME_MAX_CHARS, NewFactFields
from perdure.library.services.facts.views import Owner
from perdure.search.hits import FactHit
from perdure.search.query import parse_time
from perdure.server.wire import fields as ids
from perdure.server.wire.answers.messages import Object
from perdure.server.wire.base import WireRequest, fields
from perdure.server.wire.fields import FILLED, AgentIdIn, Date, GraphIdIn, JsonObject, keywords

_Text = Annotated[str, keywords(pattern=FILLED, maxLength=FACT_MAX_CHARS)]
_Name = Annotated[str, keywords(maxLength=NAME_MAX_CHARS)]
_Relation = Annotated[str, keywords(pattern="^[A-Z][A-Z0-9_]{1,59}$")]
_Rating = Annotated[float, Field(ge=0, le=1)]


SCOPE_MAX_CHARS = 500


def owner_of(agent_id: AgentId | None, graph_id: GraphId | None) -> Owner:
    """The agent or the graph. Raises: InvalidInput: neither is named, or both."""
    if (agent_id is None) == (graph_id is None):
        raise InvalidInput("agent_id: name an agent or, by graph_id, a graph, and not both")
    return agent_id or graph_id or AgentId("")


class OwnerIn(WireRequest):
    """An agent, for its graph, or a graph; one of both is needed."""

    agent_id: AgentIdIn | None = None
    graph_id: GraphIdIn | None = None

    @property
    def owner(self) -> Owner:
        """The agent or the graph. Raises: InvalidInput."""
        return owner_of(self.agent_id, self.graph_id)


class TimesIn(WireRequest):
    """From when until when a fact is true. Dates and times without an offset are in the agent's time zone."""

    valid_at: Date | None = None
    invalid_at: Date | None = None

    def times(self, zone: str) -> dict[str, datetime | None]:
        """The times that are set. Raises: InvalidInput: a text that is no date."""
        own = self.model_fields_set & TimesIn.model_fields.keys()
        return {name: parse_time(getattr(self, name), timezone=zone) for name in own}


class FactIn(OwnerIn, TimesIn):
    """A fact to add, in a sentence. Without a subject it is about the user, without `valid_at` it is true from now on.
    Times without a zone are in the agent's."""

    text: _Text
    subject: _Name = ""
    relation: _Relation = "REMEMBERS"
    object: _Name = ""
    rating: _Rating = 0.8

    def values(self, zone: str) -> NewFactFields:
        """The fields that are set, by their names in the library. Raises: InvalidInput."""
        return cast(NewFactFields, self.model_dump(include={"rating"}, exclude_unset=True) | self.times(zone))


class FactChangesIn(TimesIn):
    """Changes of a fact. A missing field stays; null takes a time away. `state` "active" accepts a proposal."""

    text: _Text | None = None
    relation: _Relation | None = None
    rating: _Rating | None = None
    state: FactState | None = None

    def changes(self, zone: str) -> FactFields:
        """The changed fields, by their names in the library. Raises: InvalidInput."""
        return cast(FactFields, self.non_null("text", "relation", "rating", "state") | self.times(zone))


class RuleIn(OwnerIn):
    """What must not be remembered: facts whose text holds these words, about this entity (a name or an id), or of this
    relation. One of them is needed; of several all have to hold."""

    text: Annotated[str, keywords(maxLength=FACT_MAX_CHARS)] = ""
    relation: _Relation | None = None
    entity: _Name | None = None


class FactSettingsIn(OwnerIn):
    """Changes of a graph's settings. A field that is missing or null stays."""

    paused: bool | None = None
    entity_types: JsonObject | None = None
    fact_types: ids.ItemsByName[str] | None = None
    prompt: str | None = None
    reflect: bool | None = None
    slots: ids.ItemsByName[ids.Items[str]] | None = None
    strict_slots: bool | None = None


class FactShape(TypedDict):
    id: Annotated[str, ids.IdFormat("fact")]
    text: str
    subject: str
    subject_id: str
    relation: str
    object: str
    object_id: str
    type: str | None
    rating: float
    valid_at: ids.Time | None
    invalid_at: ids.Time | None
    created_at: ids.Time
    expired_at: ids.Time | None
    state: FactState
    change: str
    trust: str
    scope: Object


class FoundFactShape(FactShape):
    """A fact of a search; the scores of one search can be compared."""

    score: float


class EntityShape(TypedDict):
    id: Annotated[str, ids.IdFormat("entity")]
    name: str
    type: str
    summary: str
    aliases: list[str]
    attributes: Object
    fact_count: int
    created_at: ids.Time
    updated_at: ids.Time


class RuleShape(TypedDict):
    number: int
    text: str
    relation: str | None
    entity: str | None
    created_at: ids.Time


class FactSettingsShape(TypedDict):
    """The settings of a graph and what it holds. `graph_id` is null as long as an agent has no graph."""

    graph_id: str | None
    settings: Object
    facts: int
    entities: int
    episodes: int
    waiting: int
    dropped: dict[str, int]


def fact_shape(hit: FactHit, *, with_score: bool = False) -> dict[str, Any]:
    """A fact with its entities."""
    ends = {"subject": "subject.name", "subject_id": "subject.id", "object": "object.name", "object_id": "object.id"}
    own = {name: f"fact.{name}" for name in FactShape.__annotations__ if name not in ends}
    return fields(hit, **own, **ends) | ({"score": hit.score} if with_score else {})


def entity_shape(entity: Entity) -> dict[str, Any]:
    """An entity."""
    return fields(entity, *EntityShape.__annotations__)


def rule_shape(rule: FactRule) -> dict[str, Any]:
    """What must not be remembered."""
    return fields(rule, "text", "relation", "created_at", number="seq") | {"entity": rule.entity_name or None}


def fact_settings_shape(graph: Graph | None, counts: GraphCounts) -> dict[str, Any]:
    """The settings of a graph, with defaults, and its counts."""
    settings = load_graph_settings({} if graph is None else graph.settings)
    return {
        "graph_id": None if graph is None else graph.id,
        "settings": fields(settings, *settings.__slots__),
        **fields(counts, "facts", "entities", "episodes", "waiting", "dropped"),
    }


class TidyIn(OwnerIn):
    """Whose facts and passages fade, by the agent's policy; of a graph without an agent its facts, by the defaults."""

    dry_run: bool = False


class TidyUndoIn(OwnerIn):
    """Whose latest pass is taken back."""


class ProfileEntryShape(TypedDict):
    slot: str
    value: str
    fact_id: str | None


class ProfileShape(TypedDict):
    """What is known about a user now. `text` has a line for each slot and takes `tokens`; `left_out` entries did not
    fit the budget."""

    user: str | None
    user_id: str | None
    slots: dict[str, list[str]]
    entries: list[ProfileEntryShape]
    text: str
    tokens: int
    left_out: int


class EventShape(TypedDict):
    at: ids.Time
    kind: Literal["begin", "end"]
    tags: list[str]
    fact_id: Annotated[str, ids.IdFormat("fact")]
    text: str


class ContextSourceShape(TypedDict):
    """Number n of the text is the n-th of these. `sources` are the ids of messages, passages and texts."""

    fact_id: Annotated[str, ids.IdFormat("fact")]
    text: str
    sources: list[str]


class FactContextShape(TypedDict):
    text: str
    tokens: int
    facts: list[ContextSourceShape]


class CommunityMemberShape(TypedDict):
    id: Annotated[str, ids.IdFormat("entity")]
    name: str
    type: str


class CommunityShape(TypedDict):
    """Entities that many facts connect. `score` is 0 without a query."""

    number: int
    name: str
    summary: str
    size: int
    members: list[CommunityMemberShape]
    score: float


class MemoryShape(TypedDict):
    """A fact or passage in its state."""

    kind: Literal["fact", "passage"]
    id: str
    text: str
    state: FactState


class TidyShape(MemoryShape):
    """A fact or passage that fades, in its state of before. `into` is the id of that which a near-duplicate becomes."""

    reason: Literal["faded", "unused", "used", "duplicate"]
    score: float
    into: str | None


def profile_shape(profile: Profile) -> dict[str, Any]:
    """A profile with its entries, and as text."""
    return {
        "user": profile.user and profile.user.name,
        "user_id": profile.user and profile.user.id,
        "entries": [fields(one, "slot", "value") | {"fact_id": one.fact and one.fact.id} for one in profile.entries],
        **fields(profile, "slots", "text", "tokens", "left_out"),
    }


def event_shape(event: FactEvent) -> dict[str, Any]:
    """The beginning or end of a fact."""
    return fields(event, "at", "kind", "tags", fact_id="fact.id", text="fact.text")


def context_shape(context: FactContext) -> dict[str, Any]:
    """A text with the sources of its facts, by their numbers."""
    facts = [
        fields(fact, "text", fact_id="id") | {"sources": [one.ref for one in context.sources.get(fact.id, ())]}
        for fact in context_facts(context)
    ]
    return fields(context, "text", "tokens") | {"facts": facts}


def community_shape(hit: CommunityHit) -> dict[str, Any]:
    """A community with some of its entities."""
    members = [fields(one, "id", "name", "type") for one in hit.members]
    shape = fields(hit.community, "name", "summary", "size", number="seq")
    return shape | {"members": members, "score": hit.score}


def memory_shape(memory: Memory) -> dict[str, Any]:
    """A fact or passage, and its state."""
    return {"kind": kind_of(memory), **fields(memory, "id", "text", "state")}


def tidy_shape(item: TidyItem) -> dict[str, Any]:
    """A fact or passage that fades, and why."""
    return memory_shape(item.memory) | fields(item, "reason", "score") | {"into": item.into and item.into.id}
