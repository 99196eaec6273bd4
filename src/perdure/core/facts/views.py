"""Views over facts: profiles, timelines, and the text that packs them. They are built anew whenever they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perdure.core.facts.values import Community, Entity, Episode, Fact
from perdure.core.ids import FactId

EventKind = Literal["begin", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactEvent:
    """The time at which a fact began or ceased to be true."""

    at: datetime
    kind: EventKind
    fact: Fact

    @property
    def tags(self) -> tuple[str, ...]:
        """The fact's relation, and its type if it has one."""
        return (self.fact.relation, *filter(None, (self.fact.type,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEntry:
    """One value of a slot. `fact` says it; None: the name of the user's entity."""

    slot: str
    value: str
    fact: Fact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is known about a user now, by slots.

    Attributes:
        user: None: nothing is known about a user yet.
        entries: in the order of the slots, within a slot the best rated and newest first.
        tokens: of `text`.
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
        """A line for each slot."""
        return "\n".join(f"- {slot}: {'; '.join(values)}" for slot, values in self.slots.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class FactContext:
    """What is known, packed into one text for any program.

    Attributes:
        text: profile, facts and events under a heading each; facts and events end in a number, as [1].
        tokens: of `text`.
        facts, events: those that stand in the text.
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
    """A community that a search found, with some of its entities, those of most facts first. Scores compare within one
    search only."""

    community: Community
    members: Sequence[Entity]
    score: float = 0.0
