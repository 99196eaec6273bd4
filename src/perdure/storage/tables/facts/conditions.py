"""The conditions of a filter of facts."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.facts.values import FactFilter
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import dump, iso, storable


def fact_conditions(where: FactFilter, alias: str = "f") -> Conditions:
    """The conditions of a filter on rows of `facts` with this alias."""
    conditions = Conditions()
    clauses: list[str] = []
    values: list[object] = []

    def add(clause: str, *of_clause: object) -> None:
        if None not in of_clause:
            clauses.append(clause.replace("~", f"{alias}."))
            values.extend(of_clause)

    def among(column: str, allowed: Sequence[str]) -> None:
        add(f"~{column} IN ({', '.join('?' * len(allowed))})" if allowed else "1 = 0", *map(storable, allowed))

    if where.as_of is None:
        add("~expired_at IS NULL")
    else:
        add("~created_at <= ?", iso(where.as_of))
        add("(~expired_at IS NULL OR ~expired_at > ?)", iso(where.as_of))
    for start, end in ((where.at, where.at), (where.since, where.until)):
        add("(~invalid_at IS NULL OR ~invalid_at > ?)", start and iso(start))
        add("(~valid_at IS NULL OR ~valid_at <= ?)", end and iso(end))
    add("~invalid_at <= ?", where.ended_at and iso(where.ended_at))
    if where.entities:
        listed = ", ".join("?" * len(where.entities))  # numbers in the text would make each statement a new one
        add(f"(~subject IN ({listed}) OR ~object IN ({listed}))", *where.entities, *where.entities)
    for column, allowed in (("relation", where.relations), ("type", where.types)):
        if allowed:
            among(column, allowed)
    among("state", where.states)
    if where.trust is not None:
        among("trust", where.trust)
    if where.min_rating > 0:
        add("~rating >= ?", where.min_rating)
    for name, value in where.scope:
        add("REPLACE(~scope, ?, '') <> ~scope", dump({name: value})[1:-1])
    conditions.add(" AND ".join(clauses), *values)
    return conditions
