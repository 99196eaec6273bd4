"""The names by which entities are found, in the one form: what was written with marks apart is found as one letter."""

from __future__ import annotations

from perdure.core.text.forms import name_key
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import restore, storable

ROWS = 1_000


def apply(db: Database) -> None:
    """Rewrite all names of `entity_names`, page by page."""
    last = {"after_graph": "", "after_name": "", "after_seq": -1}
    while rows := db.rows(
        "SELECT graph_id, name, seq FROM entity_names WHERE (graph_id, name, seq) > (:after_graph, :after_name,"
        " :after_seq) ORDER BY graph_id, name, seq LIMIT :limit",
        {**last, "limit": ROWS},
    ):
        last = dict(zip(last, rows[-1], strict=True))
        for graph_id, name, seq in rows:
            if (key := storable(name_key(restore(name)))) != name:
                row = {"graph_id": graph_id, "name": name, "key": key, "seq": seq}
                db.run("DELETE FROM entity_names WHERE graph_id = :graph_id AND name = :name AND seq = :seq", row)
                db.run(
                    "INSERT INTO entity_names (graph_id, name, seq) VALUES (:graph_id, :key, :seq)"
                    " ON CONFLICT DO NOTHING",
                    row,
                )
