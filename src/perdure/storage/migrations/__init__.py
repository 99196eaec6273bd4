"""Numbered migrations. One is never edited after release; each runs in one transaction with the row that records it.

`MIGRATIONS` lists all of them, in order. The database fills in what differs between databases:
`{clustered}` (rows stored in key order), `{blob}`, and `full_text_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.storage.database.base import Database
from perdure.storage.migrations import (
    m0001_first,
    m0002_exchanges,
    m0003_nodes,
    m0004_vectors,
    m0005_folders,
    m0006_captures,
    m0007_tag_labels,
    m0008_tools,
    m0009_approvals,
    m0010_secrets,
    m0011_mcp,
    m0012_hooks,
    m0013_mcp_left_out,
    m0014_resets,
    m0015_unended_runs,
    m0016_conversations,
    m0017_words,
    m0018_resetting,
    m0019_rebuilding,
    m0020_of_runs,
    m0021_passage_uses,
    m0022_markers,
    m0023_checksums,
)

__all__ = ["MIGRATIONS", "SCHEMA_VERSION", "Migration", "migrate", "version_of"]

Migration = tuple[int, str, Callable[[Database], None]]
"""Number, name, and the function that changes the tables."""

MIGRATIONS: Sequence[Migration] = (
    (1, "first", m0001_first.apply),
    (2, "exchanges", m0002_exchanges.apply),
    (3, "nodes", m0003_nodes.apply),
    (4, "vectors", m0004_vectors.apply),
    (5, "folders", m0005_folders.apply),
    (6, "captures", m0006_captures.apply),
    (7, "tag_labels", m0007_tag_labels.apply),
    (8, "tools", m0008_tools.apply),
    (9, "approvals", m0009_approvals.apply),
    (10, "secrets", m0010_secrets.apply),
    (11, "mcp", m0011_mcp.apply),
    (12, "hooks", m0012_hooks.apply),
    (13, "mcp_left_out", m0013_mcp_left_out.apply),
    (14, "resets", m0014_resets.apply),
    (15, "unended_runs", m0015_unended_runs.apply),
    (16, "conversations", m0016_conversations.apply),
    (17, "words", m0017_words.apply),
    (18, "resetting", m0018_resetting.apply),
    (19, "rebuilding", m0019_rebuilding.apply),
    (20, "of_runs", m0020_of_runs.apply),
    (21, "passage_uses", m0021_passage_uses.apply),
    (22, "markers", m0022_markers.apply),
    (23, "checksums", m0023_checksums.apply),
)


def version_of(migrations: Sequence[Migration]) -> int:
    """The version of the tables after all these migrations."""
    return migrations[-1][0]


SCHEMA_VERSION = version_of(MIGRATIONS)


def migrate(db: Database, migrations: Sequence[Migration] = MIGRATIONS, *, at: str) -> int:
    """Run the migrations that the open transaction's database does not have yet; return how many. Safe to run twice."""
    db.run("CREATE TABLE IF NOT EXISTS schema_migrations (number INTEGER PRIMARY KEY, name TEXT, applied_at TEXT)", {})
    done = {row[0] for row in db.rows("SELECT number FROM schema_migrations", {})}
    missing = [migration for migration in migrations if migration[0] not in done]
    for number, name, apply in missing:
        apply(db)
        db.run(
            "INSERT INTO schema_migrations (number, name, applied_at) VALUES (:number, :name, :at)",
            {"number": number, "name": name, "at": at},
        )
    return len(missing)
