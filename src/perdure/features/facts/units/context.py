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
    tz: tzinfo,
) -> FactContext:
    """Pack a profile, the first facts and the latest events into one text of at most `budget_tokens`.

    Args:
        profile: takes at most `PROFILE_SHARE` of the budget.
        facts: the best first.
        events: oldest first; an event of a fact that stands among the facts is left out.
        count: returns the tokens of a text.
        tz: the zone in which days are written.
    """
    chosen: list[Fact] = []
    latest: list[FactEvent] = []

    def build() -> FactContext:
        """Return the context of the facts and events that are chosen so far."""
        ids = dict.fromkeys([*(fact.id for fact in chosen), *(event.fact.id for event in latest)])
        numbers = {fact_id: place for place, fact_id in enumerate(ids, 1)}
        parts = [
            ("Profile", profile.text),
            ("Facts", "\n".join(f"- {fact_line(fact, tz)} [{numbers[fact.id]}]" for fact in chosen)),
            ("Events", "\n".join(f"- {_event_line(event, tz)} [{numbers[event.fact.id]}]" for event in latest)),
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
    """Return the facts that a packed text cites, so that number n in the text is the n-th of them."""
    by_id = {fact.id: fact for fact in (*packed.facts, *(event.fact for event in packed.events))}
    return list(by_id.values())


def fact_line(fact: Fact, tz: tzinfo) -> str:
    """Return a fact in one line, with the days from and until which it was true."""
    text = " ".join(fact.text.split())
    if fact.valid_at is None and fact.invalid_at is None:
        return text
    if fact.invalid_at is None:
        return f"{text} (since {_day(fact.valid_at, tz)})"
    since = f"from {_day(fact.valid_at, tz)} " if fact.valid_at else ""
    return f"{text} ({since}until {_day(fact.invalid_at, tz)})"


def _event_line(event: FactEvent, tz: tzinfo) -> str:
    """Return an event in one line, such as `2026-11-24: no longer: Ada lives in Turin.`"""
    text = " ".join(event.fact.text.split())
    return f"{_day(event.at, tz)}: {'' if event.kind == 'begin' else 'no longer: '}{text}"


def _day(at: datetime | None, tz: tzinfo) -> str:
    return "" if at is None else local(at, tz).date().isoformat()
