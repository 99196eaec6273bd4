"""What is derived from facts: profiles, timelines, texts, communities and what fades. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from perdure.core.facts.values import FactState
from perdure.core.facts.views import CommunityHit, FactContext, FactEvent, Profile
from perdure.domain.facts.context import context_facts
from perdure.domain.forgetting import Memory, TidyItem, kind_of
from perdure.server.wire import fields as ids
from perdure.server.wire.answers.facts import OwnerIn
from perdure.server.wire.base import fields


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
