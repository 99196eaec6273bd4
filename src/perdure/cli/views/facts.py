"""Facts for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from perdure.cli.views.json import fields
from perdure.cli.views.view import local_time, new_table, visible
from perdure.cli.views.why import day, true_times
from perdure.core.facts.values import Entity, Fact, FactRule
from perdure.search.hits import FactHit

FIELDS = ("id", "text", "relation", "type", "rating", "valid_at", "invalid_at", "created_at", "expired_at", "state")
SHORT_CHARS = 13
"""Of an id in a list: enough to name it."""


def fact_shape(hit: FactHit, *, with_score: bool = False) -> dict[str, Any]:
    """A fact with the names of its entities."""
    shape = fields(hit.fact, *FIELDS, "change", "trust")
    shape |= {"subject": hit.subject.name, "object": hit.object.name}
    if with_score:
        shape["score"] = hit.score
    return shape if hit.why is None else shape | {"why": asdict(hit.why)}


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
        row = [fact.id[:SHORT_CHARS], visible(fact.text)]
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
