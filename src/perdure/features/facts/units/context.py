"""What is known as one text: profile, facts and events, within a budget of tokens, each with its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo

from perdure.core.text.zones import local
from perdure.features.facts.values.facts import Fact, FactContext, FactEvent, Profile

PROFILE_SHARE, FACTS_SHARE = 0.4, 0.75
"""How much of the budget the profile may take, and the profile and the facts together; events take the rest."""


def pack_context(
    profile: Profile,
    facts: Sequence[Fact],
    events: Sequence[FactEvent],
    *,
    budget_tokens: int,
    count: Callable[[str], int],
    home: tzinfo,
) -> FactContext:
    """Pack a profile that fits its share, the first facts and the latest events into one text, with days as `home` has
    them. `events` are in order; a fact whose line stands among the facts is not an event again."""
    chosen: list[Fact] = []
    latest: list[FactEvent] = []

    def build() -> FactContext:
        ids = dict.fromkeys([*(fact.id for fact in chosen), *(event.fact.id for event in latest)])
        numbers = {fact_id: place for place, fact_id in enumerate(ids, 1)}
        parts = [
            ("Profile", profile.text),
            ("Facts", "\n".join(f"- {fact_line(fact, home)} [{numbers[fact.id]}]" for fact in chosen)),
            ("Events", "\n".join(f"- {_event(event, home)} [{numbers[event.fact.id]}]" for event in latest)),
        ]
        text = "\n\n".join(f"# {title}\n{body}" for title, body in parts if body)
        return FactContext(
            text=text, tokens=count(text) if text else 0, profile=profile, facts=tuple(chosen), events=tuple(latest)
        )

    packed = build()
    if packed.tokens > budget_tokens:
        profile, packed = Profile(user=profile.user), FactContext(profile=Profile(user=profile.user))
    share = FACTS_SHARE * budget_tokens if events else budget_tokens
    for fact in facts:
        chosen.append(fact)
        if (longer := build()).tokens <= share:
            packed = longer
        else:
            chosen.pop()
    shown = {fact.id for fact in chosen}
    for event in reversed(events):
        if event.fact.id in shown:
            continue
        latest.insert(0, event)
        if (longer := build()).tokens > budget_tokens:
            latest.pop(0)
            break
        packed = longer
    return packed


def context_facts(packed: FactContext) -> Sequence[Fact]:
    """Return the facts of a text in the order of their numbers."""
    by_id = {fact.id: fact for fact in (*packed.facts, *(event.fact for event in packed.events))}
    return list(by_id.values())


def fact_line(fact: Fact, home: tzinfo) -> str:
    """Return a fact with the days at which it was true there."""
    text = " ".join(fact.text.split())
    if fact.valid_at is None and fact.invalid_at is None:
        return text
    if fact.invalid_at is None:
        return f"{text} (since {_day(fact.valid_at, home)})"
    since = f"from {_day(fact.valid_at, home)} " if fact.valid_at else ""
    return f"{text} ({since}until {_day(fact.invalid_at, home)})"


def _event(event: FactEvent, home: tzinfo) -> str:
    text = " ".join(event.fact.text.split())
    return f"{_day(event.at, home)}: {'' if event.kind == 'begin' else 'no longer: '}{text}"


def _day(at: datetime | None, home: tzinfo) -> str:
    return "" if at is None else local(at, home).date().isoformat()
