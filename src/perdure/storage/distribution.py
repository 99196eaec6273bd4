"""Where each table's rows lie when the database is spread over several nodes, by Citus or by hash partitions.

A family is a thing with the tables of its parts: all rows of one agent lie on one node, and so do those of one block or
archive. Two families never lie together, so a statement of the hot paths names the key of one family only; what it
needs of another one it reads in a second statement. `tests/storage/test_distribution.py` checks that, and that each
table has its line here. `python -m perdure.storage.distribution` prints the statements that `citus_statements` builds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from perdure.core.features import archive_columns, feature_org_tables, feature_roots, feature_tables

FAMILIES: Mapping[str, Mapping[str, str]] = {
    "agents": {
        "agents": "id",
        **dict.fromkeys(
            (
                *("agent_details", "agent_blocks", "agent_archives", "agent_tools"),
                *("agent_identities", "conversations", "conversation_blocks", "captures"),
                *("resets", "resetting", "messages", "message_revisions", "summary_nodes"),
                *("prefixes", "system_messages", "client_tools", "runs", "idempotency_keys", "steps"),
                *("step_exchanges", "events", "call_starts"),
                *("corrections", "correction_items", "erasures", "message_sources", "turns"),
                *("view_gaps", "agent_revisions"),
                *(table.name for table in feature_tables()),
                *(
                    table
                    for root in feature_roots()
                    for table in root.of_agents
                    if root.reference or table not in root.parts
                ),
            ),
            "agent_id",
        ),
    },
    "blocks": {"blocks": "id", "block_versions": "block_id", "block_identities": "block_id"},
    "archives": {"archives": "id", **dict.fromkeys(("passages", "passage_tags", "archive_tags"), "archive_id")},
    "vector_scopes": dict.fromkeys(
        ("vector_scopes", "vectors", "embedding_queue", "message_words", "passage_words"), "number"
    ),
    **{
        root.name: {root.name: "id", **dict.fromkeys(root.parts, root.key)}
        for root in feature_roots()
        if not root.reference
    },
    **{
        first: {one.name: one.of[0] for one in feature_org_tables() if one.family == first and one.of}
        for first in dict.fromkeys(one.family for one in feature_org_tables() if one.family)
    },
    "memory_sources": {"memory_sources": "owner_id"},
    "ids": {"ids": "id"},
    "deleted_places": {"deleted_places": "digest"},
}
"""First table of a family -> its tables -> the column by which their rows are distributed."""

REFERENCE: Mapping[str, str] = {
    "organisations": "few",
    "tools": "few, and joined with the tools of each agent",
    "providers": "few",
    "identities": "joined with those of agents and of blocks",
    **{root.name: root.reference for root in feature_roots() if root.reference},
    "secrets": "few, and read for each call of a tool",
    "sandbox_configs": "one for an organisation",
    "sandbox_variables": "few",
    "token_factors": "one for a model, and read for each request",
    "model_traits": "one for a model",
    **{table.name: table.why for table in feature_org_tables() if not (table.family or table.is_local)},
}
"""Tables that each node has whole, and why."""

LOCAL: Mapping[str, str] = {
    "schema_migrations": "about the database itself",
    "counters": "one row, which each new agent, block or archive counts up",
    "rebuilding": "at most two rows",
    "commit_marks": "about the connections to the first node",
    "batches": "read by its id only",
    "embedding_cache": "a cache",
    "used": "a few rows for each key and agent with a limit, written every few seconds",
    **{table.name: table.why for table in feature_org_tables() if table.is_local},
}
"""Tables that stay on the first node, and why."""

UNIQUE_ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "agents": {"agents_number_key": "number"},
    "blocks": {"blocks_number_key": "number"},
    "archives": {"archives_number_key": "number"},
    **{
        root.name: {f"{root.name}_{column}_key": column for column in ("number", *archive_columns(root.name))}
        for root in feature_roots()
        if not root.reference
    },
}
"""Table -> its unique constraints that lack the column of distribution -> the column that is indexed in their place. A
counter or a new random id makes their values, so nothing but the database's own check is lost."""

NEW_INDEXES: Mapping[str, tuple[str, str]] = {
    "runs_unended": (
        "runs",
        "UNIQUE INDEX runs_unended ON runs"
        " (conversation_id, (CASE status WHEN 'running' THEN -1 ELSE seq END), agent_id)"
        " WHERE status IN ('queued', 'running')",
    )
}
"""Unique index -> its table and what takes its place; for the same reason. A conversation has one agent, so both forbid
the same."""

NEW_KEYS: Mapping[str, tuple[str, str]] = {
    "vectors": ("number, key", ""),
    **{one.name: (", ".join(one.spread_key), one.spread_key[-1]) for one in feature_tables() if one.spread_key},
}
"""Table -> the primary key that it has to have, and the column that is indexed besides; for the same reason."""


def distributed() -> Mapping[str, str]:
    """Table -> the column by which its rows are distributed."""
    return {table: column for tables in FAMILIES.values() for table, column in tables.items()}


def preparation(table: str | None = None) -> Sequence[str]:
    """Return the SQL that prepares a table (None: all tables) to be distributed over several servers by Citus: all its
    unique indexes get the column by which rows are distributed."""
    return [statement for name, statement in _preparation() if table in (None, name)]


def citus_statements() -> Sequence[str]:
    """The statements that distribute the tables of a prepared database, in their order."""
    return [
        *(f"SELECT create_reference_table('{table}')" for table in REFERENCE),
        *(
            f"SELECT create_distributed_table('{table}', '{column}', colocate_with =>"
            f" '{'none' if table == first else first}')"
            for first, tables in FAMILIES.items()
            for table, column in tables.items()
        ),
    ]


def _preparation() -> Iterator[tuple[str, str]]:
    """Yield each statement of `preparation`, as (table, statement)."""
    for table, constraints in UNIQUE_ELSEWHERE.items():
        for constraint, column in constraints.items():
            yield table, f"ALTER TABLE {table} DROP CONSTRAINT {constraint}"
            yield table, f"CREATE INDEX {constraint} ON {table} ({column})"
    for index, (table, definition) in NEW_INDEXES.items():
        yield table, f"DROP INDEX {index}"
        yield table, f"CREATE {definition}"
    for table, (key, column) in NEW_KEYS.items():
        yield table, f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey, ADD PRIMARY KEY ({key})"
        if column:
            yield table, f"CREATE INDEX {table}_by_{column} ON {table} ({column})"


def main() -> None:
    """Print the statements that spread a new database over the nodes of Citus."""
    lines = ["BEGIN", *preparation(), *citus_statements(), "COMMIT"]
    sys.stdout.writelines(f"{line};\n" for line in lines)


if __name__ == "__main__":
    main()
