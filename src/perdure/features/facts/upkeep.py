"""Comparing what is derived in graphs with its rows: how many facts name an entity, and the names that lead to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from perdure.core.ids import GraphId, OrgId
from perdure.core.text.forms import name_key
from perdure.core.vectors import CheckResult, IndexFault
from perdure.features.facts.tables import Graphs
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import Row, insert_into, load, restore, storable
from perdure.storage.tables.table import parts


def check_entities(
    db: Database, org_id: OrgId, after: tuple[str, int], limit: int, repair: bool
) -> CheckResult[tuple[str, int]]:
    """Compare the next `limit` entities of an organisation, after a graph's id and an entity's number, with their facts
    and names. `repair` also mends what is wrong. Returns the faults, and the place to go on, None at the end."""
    rows = db.rows(
        "SELECT e.graph_id, e.seq, e.name, e.aliases, e.fact_count FROM entities e WHERE e.graph_id IN"
        " (SELECT id FROM graphs WHERE org_id = :org_id) AND (e.graph_id, e.seq) > (:id, :seq)"
        " AND e.merged_into IS NULL ORDER BY e.graph_id, e.seq LIMIT :limit",
        {"org_id": org_id, "id": after[0], "seq": after[1], "limit": limit},
    )
    faults: list[IndexFault] = []
    for graph_id, group in groupby(rows, key=itemgetter(0)):
        entities = list(group)
        for text, count in (
            ("entities with a wrong number of facts", _check_counts(db, graph_id, entities, repair=repair)),
            ("entities not found by their names", _check_names(db, graph_id, entities, repair=repair)),
        ):
            if count:
                faults.append(IndexFault("counts", graph_id, text, count, repair))
    return CheckResult(faults, (rows[-1][0], rows[-1][1]) if len(rows) == limit else None, 0)


def _check_counts(db: Database, graph_id: str, entities: Sequence[Row], *, repair: bool) -> int:
    """Return how many entities, given as rows of one graph, have a wrong count of the believed facts that name them."""
    params = {"graph_id": graph_id, "first": entities[0][1], "last": entities[-1][1]}
    true: Counter[int] = Counter()
    for column in ("subject", "object"):
        rows = db.rows(
            f"SELECT {column}, COUNT(*) FROM facts{db.by_index(f'facts_by_{column}')} WHERE graph_id = :graph_id"
            f" AND {column} BETWEEN :first AND :last AND expired_at IS NULL GROUP BY {column}",
            params,
        )
        true.update({row[0]: row[1] for row in rows})
    wrong = [seq for _, seq, _, _, count in entities if count != true[seq]]
    if repair:
        db.run_many(
            "UPDATE entities SET fact_count = :count WHERE graph_id = :graph_id AND seq = :seq",
            [{"count": true[seq], "graph_id": graph_id, "seq": seq} for seq in wrong],
        )
    return len(wrong)


def _check_names(db: Database, graph_id: str, entities: Sequence[Row], *, repair: bool) -> int:
    """Return how many entities, given as rows of one graph, are not found by one of their names."""
    expected = {
        (name_key(name), seq) for _, seq, stored, aliases, _ in entities for name in (restore(stored), *load(aliases))
    }
    found: set[tuple[str, int]] = set()
    for chunk in parts(sorted({name for name, _ in expected})):
        where = Conditions("graph_id = :graph_id", graph_id=graph_id)
        where.among("name", chunk)
        rows = db.rows(f"SELECT name, seq FROM entity_names WHERE {where}", where.params)
        found |= {(restore(name), seq) for name, seq in rows}
    missing = sorted(expected - found)
    if repair:
        new: Any = [{"graph_id": graph_id, "name": storable(name), "seq": seq} for name, seq in missing]
        db.run_many(insert_into("entity_names", "graph_id, name, seq"), new)
    return len({seq for _, seq in missing})


def renew_version(db: Database, org_id: OrgId, table: str, owner_id: str) -> Mapping[str, int]:
    """Return the columns that changed rows of facts have to get: a new version of their graph, by which searches see
    the change. `owner_id` is the graph; rows of other tables need nothing."""
    if table != "facts":
        return {}
    return {"graph_version": Graphs(db, org_id).take_numbers(GraphId(owner_id), "fact", 0)[1]}
