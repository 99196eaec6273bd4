"""Facts, entities and rules, and what is derived from facts: what clients send, and the shapes of answers.

No part of Letta's API.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, cast

from pydantic import Field

from perdure.core.errors import InvalidInput
from perdure.core.forgetting.origins import FactOrigin
from perdure.core.ids import AgentId, GraphId
from perdure.features.facts.entities import NAME_MAX_CHARS, EntityFields
from perdure.features.facts.fading.policy import Memory, TidyItem, kind_of
from perdure.features.facts.service import NewFactFields
from perdure.features.facts.units.context import context_facts
from perdure.features.facts.units.graphs import ALIASES_MAX, FACT_MAX_CHARS, FactFields
from perdure.features.facts.values.facts import (
    CommunityHit,
    Entity,
    Fact,
    FactContext,
    FactEvent,
    FactHit,
    FactRule,
    FactState,
    Graph,
    GraphCounts,
    Profile,
    ProfileEntry,
)
from perdure.features.facts.values.settings import load_graph_settings
from perdure.features.facts.views import Owner
from perdure.search.ranking.query import parse_time
from perdure.server.wire import fields as ids
from perdure.server.wire.base import WireRequest, fields
from perdure.server.wire.fields import FILLED, AgentIdIn, Date, GraphIdIn, JsonObject, keywords
from perdure.server.wire.shapes import Object, WireShape, computed

FactSettingOfAgent = bool | JsonObject
"""What requests name as an agent's setting."""

_Text = Annotated[str, keywords(pattern=FILLED, maxLength=FACT_MAX_CHARS)]
_Name = Annotated[str, keywords(maxLength=NAME_MAX_CHARS)]
_Relation = Annotated[str, keywords(pattern="^[A-Z][A-Z0-9_]{1,59}$")]
_Rating = Annotated[float, Field(ge=0, le=1)]


SCOPE_MAX_CHARS = 500


def owner_of(agent_id: AgentId | None, graph_id: GraphId | None) -> Owner:
    """The agent or the graph, of which exactly one has to be named. Raises: InvalidInput."""
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
        """The times that the request names, by field; dates without an offset are in `zone`. Raises: InvalidInput."""
        own = self.model_fields_set & TimesIn.model_fields.keys()
        return {name: parse_time(name, getattr(self, name), timezone=zone) for name in own}


class FactIn(OwnerIn, TimesIn):
    """A fact to add, in a sentence. Without a subject it is about the user, without `valid_at` it is true from now on.
    Times without a zone are in the agent's."""

    text: _Text
    subject: _Name = ""
    relation: _Relation = "REMEMBERS"
    object: _Name = ""
    rating: _Rating = 0.8

    def values(self, zone: str) -> NewFactFields:
        """The fields of `NewFactFields` that the request names; `zone` is as of `times`. Raises: InvalidInput."""
        return cast(NewFactFields, self.model_dump(include={"rating"}, exclude_unset=True) | self.times(zone))


class FactChangesIn(TimesIn):
    """Changes of a fact. A missing field stays; null takes a time away. `state` "active" accepts a proposal."""

    text: _Text | None = None
    relation: _Relation | None = None
    rating: _Rating | None = None
    state: FactState | None = None

    def changes(self, zone: str) -> FactFields:
        """The fields of `FactFields` that the request changes; `zone` is as of `times`. Raises: InvalidInput."""
        return cast(FactFields, self.non_null("text", "relation", "rating", "state") | self.times(zone))


class RuleIn(OwnerIn):
    """What must not be remembered: facts whose text holds these words, about this entity (a name or an id), or of this
    relation. One of them is needed; of several all have to hold."""

    text: Annotated[str, keywords(maxLength=FACT_MAX_CHARS)] = ""
    relation: _Relation | None = None
    entity: _Name | None = None


class EntityChangesIn(WireRequest):
    """Changes of an entity. A field that is missing or null stays; `aliases` are all its other names."""

    name: Annotated[str, keywords(pattern=FILLED, maxLength=NAME_MAX_CHARS)] | None = None
    type: Annotated[str, keywords(pattern=FILLED, maxLength=NAME_MAX_CHARS)] | None = None
    aliases: Annotated[list[_Name], Field(max_length=ALIASES_MAX)] | None = None

    def changes(self) -> EntityFields:
        """The fields of `EntityFields` that the request changes."""
        return cast(EntityFields, self.non_null("name", "type", "aliases"))


class EntityMergeIn(WireRequest):
    """The entity that another one is the same as."""

    into: ids.EntityIdIn


class FactSettingsIn(OwnerIn):
    """Changes of a graph's settings. A field that is missing or null stays."""

    paused: bool | None = None
    entity_types: JsonObject | None = None
    fact_types: ids.ItemsByName[str] | None = None
    prompt: str | None = None
    reflect: bool | None = None
    slots: ids.ItemsByName[ids.Items[str]] | None = None
    strict_slots: bool | None = None


class TidyIn(OwnerIn):
    """Whose facts and passages fade, by the agent's policy; of a graph without an agent its facts, by the defaults."""

    dry_run: bool = False


class TidyUndoIn(OwnerIn):
    """Whose latest pass is taken back."""


class FactShape(
    WireShape,
    of=FactHit,
    fields="fact.id fact.text fact.relation fact.type fact.rating fact.valid_at fact.invalid_at fact.created_at"
    " fact.expired_at fact.state fact.change fact.trust fact.scope",
    subject="subject.name",
    subject_id="subject.id",
    object="object.name",
    object_id="object.id",
):
    """A fact with its entities."""


class FoundFactShape(FactShape, fields="score"):
    """A fact of a search; the scores of one search can be compared."""


class EntityShape(
    WireShape, of=Entity, fields="id name type summary aliases attributes fact_count created_at updated_at"
):
    """An entity."""


class RuleShape(WireShape, of=FactRule, fields="text relation created_at", number="seq"):
    """What must not be remembered."""

    entity: str | None = computed(lambda rule: rule.entity_name or None)


class FactSettingsShape(WireShape, of=GraphCounts, fields="facts entities episodes waiting dropped"):
    """The settings of a graph and what it holds. `graph_id` is null as long as an agent has no graph."""

    graph_id: str | None
    settings: Object


def fact_settings_shape(graph: Graph | None, counts: GraphCounts) -> FactSettingsShape:
    """The settings of a graph, with defaults, and its counts; without a graph the defaults."""
    settings = load_graph_settings({} if graph is None else graph.settings)
    own = fields(settings, *settings.__slots__)
    return FactSettingsShape.make(counts, graph_id=None if graph is None else graph.id, settings=own)


class ProfileEntryShape(WireShape, of=ProfileEntry, fields="slot value", fact_id="fact.id"):
    """A value of a slot; without a fact it is the user's name."""


class ProfileShape(WireShape, of=Profile, fields="slots text tokens left_out", user="user.name", user_id="user.id"):
    """What is known about a user. `text`: a line per slot, of `tokens`; `left_out`: entries beyond the budget."""

    entries: list[ProfileEntryShape]


class EventShape(WireShape, of=FactEvent, fields="at kind tags fact.text", fact_id="fact.id"):
    """The beginning or end of a fact."""


class ContextSourceShape(WireShape, of=Fact, fields="text", fact_id="id"):
    """Number n of the text is the n-th of these. `sources` are the ids of messages, passages and texts."""

    sources: list[str]


class FactContextShape(WireShape, of=FactContext, fields="text tokens"):
    """A text with the sources of its facts, by their numbers."""

    facts: list[ContextSourceShape] = computed(
        lambda context: [
            ContextSourceShape.make(fact, sources=[source.ref for source in context.sources.get(fact.id, ())])
            for fact in context_facts(context)
        ]
    )


class CommunityMemberShape(WireShape, of=Entity, fields="id name type"):
    """An entity of a community."""


class CommunityShape(
    WireShape, of=CommunityHit, fields="community.name community.summary community.size score", number="community.seq"
):
    """Entities that many facts connect, with some of them. `score` is 0 without a query."""

    members: list[CommunityMemberShape]


class MemoryShape(WireShape, of=Memory, fields="id text state"):
    """A fact or passage in its state."""

    kind: Literal["fact", "passage"] = computed(kind_of)


class TidyShape(WireShape, of=TidyItem, fields="kind reason score memory.id memory.text memory.state", into="into.id"):
    """A fact or passage that fades, in its state of before. `into` is the id of that which a near-duplicate becomes."""


class FactOriginShape(WireShape, of=FactOrigin, fields="type id text subject relation object"):
    """The versions of a fact, and what it comes from."""

    versions: list[Object]
    sources: list[Object]
