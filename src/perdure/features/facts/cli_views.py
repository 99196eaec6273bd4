"""Facts for people and for programs, and what other commands show of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from perdure.cli.views.hits import FeatureHits, SearchOptions
from perdure.cli.views.json import fields, score_shape
from perdure.cli.views.view import indented, line_view, local_time, new_table, short_id, visible
from perdure.core.forgetting.origins import FactOrigin
from perdure.core.text.zones import local, zone
from perdure.features.facts.values.facts import Entity, Fact, FactHit, FactRule
from perdure.search.ranking.hits import Hits

if TYPE_CHECKING:
    from perdure.cli.session.session import ChatSession

FIELDS = ("id", "text", "relation", "type", "rating", "valid_at", "invalid_at", "created_at", "expired_at", "state")
FOUND_MAX, SEARCH_LIMIT, LIST_LIMIT = 5, 10, 20
"""The most facts in a search beside other hits, and in a chat."""


def fact_shape(hit: FactHit) -> dict[str, Any]:
    """A fact for programs, with the names of its entities."""
    shape = fields(hit.fact, *FIELDS, "change", "trust")
    return shape | fields(hit, subject="subject.name", object="object.name")


def entity_shape(entity: Entity) -> dict[str, Any]:
    """An entity for programs."""
    names = ("id", "name", "type", "summary", "fact_count", "created_at", "updated_at")
    return fields(entity, *names) | {"aliases": list(entity.aliases)}


def rule_shape(rule: FactRule) -> dict[str, Any]:
    """A rule about what must not be remembered, for programs."""
    return {"number": rule.seq, **fields(rule, "text", "relation", "created_at"), "entity": rule.entity_name or None}


def facts_view(hits: Sequence[FactHit], timezone: str) -> Sequence[RenderableType]:
    """A table of facts: when they were true, as days in this time zone, and the ids that other commands take."""
    if not hits:
        return [Text("No facts.")]
    with_state = any(hit.fact.state != "active" or hit.fact.expired_at is not None for hit in hits)
    columns = ("id", "fact", "since", "until", *(("state",) if with_state else ()))
    table = new_table(*columns, styles={"id": "dim", "fact": "bold"})
    for hit in hits:
        fact = hit.fact
        row = [short_id(fact.id), visible(fact.text)]
        row += ["-" if at is None else day(at, timezone) for at in (fact.valid_at, fact.invalid_at)]
        table.add_row(*row, *([state_of(fact)] if with_state else ()))
    return [table]


def fact_view(hit: FactHit, timezone: str) -> Sequence[RenderableType]:
    """A fact, whole, with its days in this time zone."""
    fact = hit.fact
    who = f"{visible(hit.subject.name)} {fact.relation} {visible(hit.object.name)}"
    state = f"{state_of(fact)}, rating {fact.rating:.2f}, from {fact.trust}, {local_time(fact.created_at)}"
    return [
        Text.assemble((visible(fact.text), "bold"), (f"  {fact.id}", "dim")),
        Text(f"  {who}; {true_times(fact.valid_at, fact.invalid_at, timezone)}"),
        Text(f"  {state}", style="dim"),
    ]


def state_of(fact: Fact) -> str:
    """The state of a fact in words."""
    return "no longer believed" if fact.expired_at is not None else fact.state


async def search_facts(searching: SearchOptions) -> FeatureHits:
    """Return the facts for `perdure search`, beside other hits; none if it asks for tags, which facts lack."""
    hits: Hits[FactHit] | None = None
    if searching.agent is not None and not searching.tags:
        hits = await searching.agent.facts.search(
            searching.text,
            states=searching.states,
            limit=min(searching.limit, FOUND_MAX),
            explain=searching.explain,
            since=searching.since,
            until=searching.until,
        )
    return FeatureHits(
        name="facts",
        ran=None if hits is None else hits.ran,
        shapes=[fact_shape(hit) | score_shape(hit) for hit in hits or ()],
        rows=[(hit.fact.valid_at or hit.fact.created_at, "fact", hit.fact.text, hit.why) for hit in hits or ()],
    )


async def show_facts(session: ChatSession, argument: str) -> None:
    """Show what the agent knows as facts, newest first, or what matches a text."""
    home = session.agent.info.timezone
    if argument:
        hits = await session.agent.facts.search(argument, limit=SEARCH_LIMIT)
        session.view.show({"facts": [fact_shape(hit) | score_shape(hit) for hit in hits]}, *facts_view(hits, home))
    else:
        newest = await session.agent.facts.list(limit=LIST_LIMIT)
        session.view.show({"facts": [fact_shape(hit) for hit in newest]}, *facts_view(newest, home))
        if not newest:
            session.view.hint("they are extracted from what is said, some seconds after the answer; /memory has notes")
            return
    session.view.hint("/why ID shows where one comes from; `perdure fact edit ID TEXT` corrects it")


AUTHORS = {  # kind of author, as origins say it -> how a person reads it
    "person": "a person",
    "correction": "a person",
    "program": "a program",
    "policy": "Perdure",
    "system": "Perdure",
}


def origin_view(origin: FactOrigin) -> Iterator[RenderableType]:
    """The versions of a fact with their authors and reasons, and its sources with their texts, for `perdure why`."""
    yield Text.assemble(("fact", "bold cyan"), f"  {visible(origin.relation)}", (f"  {origin.id}", "dim"))
    yield indented(origin.text)
    for number, version in enumerate(origin.versions, 1):
        author = AUTHORS.get(version.author, version.author)
        model = f" with {version.model}" if version.model else ""
        head = f"version {number}  {version.change} by {visible(author)}{visible(model)}: {version.reason}"
        yield Text.assemble((head, "bold"), (f"  {local_time(version.created_at)}", "dim"))
        if version.expired_at == version.created_at:  # nobody believed it, as a version that says who deleted a fact
            continue
        yield indented(version.text)
        believed = "" if version.expired_at is None else f"; believed until {local_time(version.expired_at)}"
        state = "" if version.state == "active" else f"; {version.state}"
        yield Text(f"  {true_times(version.valid_at, version.invalid_at)}{believed}{state}", style="dim")
    for source in origin.sources:
        who = source.name or source.role or source.kind
        yield line_view(f"from {who}, {local_time(source.at)}", source.id, source.text)
        if source.run_id is not None:
            yield Text(f"    {'  '.join(filter(None, (source.run_id, source.step_id)))}", style="dim")


def true_times(valid_at: datetime | None, invalid_at: datetime | None, timezone: str | None = None) -> str:
    """The times at which a fact was true, in words; `timezone` None: in the zone of the times."""
    if valid_at is None and invalid_at is None:
        return "true at an unknown time"
    since = "" if valid_at is None else f" since {day(valid_at, timezone)}"
    until = "" if invalid_at is None else f" until {day(invalid_at, timezone)}"
    return f"true{since}{until}"


def day(at: datetime, timezone: str | None = None) -> str:
    """A date in this time zone, with the time unless it is midnight, which facts have that name only a day."""
    at = local(at, zone(timezone)) if timezone else at
    return at.strftime("%Y-%m-%d" if (at.hour, at.minute, at.second) == (0, 0, 0) else "%Y-%m-%d %H:%M")
