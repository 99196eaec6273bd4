"""Facts for people and for programs, and what other commands show of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from perdure.cli.views.hits import MoreHits, Searching
from perdure.cli.views.json import fields, score_shape
from perdure.cli.views.origins import day, true_times
from perdure.cli.views.view import local_time, new_table, short_id, visible
from perdure.features.facts.values.facts import Entity, Fact, FactHit, FactRule
from perdure.search.ranking.hits import Hits

if TYPE_CHECKING:
    from perdure.cli.session.session import ChatSession

FIELDS = ("id", "text", "relation", "type", "rating", "valid_at", "invalid_at", "created_at", "expired_at", "state")
FOUND_MAX, SEARCH_LIMIT, LIST_LIMIT = 5, 10, 20
"""The most facts in a search beside other hits, and in a chat."""


def fact_shape(hit: FactHit) -> dict[str, Any]:
    """A fact with the names of its entities."""
    shape = fields(hit.fact, *FIELDS, "change", "trust")
    return shape | fields(hit, subject="subject.name", object="object.name")


def entity_shape(entity: Entity) -> dict[str, Any]:
    """An entity."""
    names = ("id", "name", "type", "summary", "fact_count", "created_at", "updated_at")
    return fields(entity, *names) | {"aliases": list(entity.aliases)}


def rule_shape(rule: FactRule) -> dict[str, Any]:
    """What must not be remembered."""
    return {"number": rule.seq, **fields(rule, "text", "relation", "created_at"), "entity": rule.entity_name or None}


def facts_view(hits: Sequence[FactHit], timezone: str) -> Sequence[RenderableType]:
    """A table of facts: when they were true there, and their ids, which the other commands take."""
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
    """What became of a fact, in a word."""
    return "no longer believed" if fact.expired_at is not None else fact.state


async def search_facts(searching: Searching) -> MoreHits:
    """The facts that a search of the command line shows; none where tags are named, which facts have not."""
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
    return MoreHits(
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
