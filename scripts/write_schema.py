"""Write the files `schema.sql`, the tables as all migrations leave them, by which new stores are made.

Each lies beside the migrations that made its tables: the kernel's, or a feature's. Run it after adding a migration;
`tests/storage/test_schema.py` compares both on SQLite and PostgreSQL.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import perdure
from perdure.storage.migrations import FOLDERS, MIGRATIONS, RECORD, SCHEMA_FILE, run_steps
from perdure.storage.stores.sqlite import SqliteDatabase

PACKAGE = Path(perdure.__file__).parent
HEAD = """-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.
"""


AT = "the time at which the store is made"
_TIME_OF_STORE = "(SELECT MIN(applied_at) FROM schema_migrations)"
_RECORD = "ALTER TABLE schema_migrations ADD COLUMN least INTEGER;"


def build_schemas() -> dict[Path, str]:
    """File -> the statements that make the tables, in the order in which the migrations make them."""
    with closing(sqlite3.connect(":memory:")) as connection:
        db = SqliteDatabase(connection)
        db.run(RECORD, {})
        files: dict[str, Path] = {}
        for migration in MIGRATIONS:
            run_steps(db, [migration], at=AT)
            folder = next(one for one in FOLDERS if any(one.rglob(f"m{migration.number:04}_*.*")))
            for (name,) in connection.execute("SELECT name FROM sqlite_master"):
                files.setdefault(name, folder / SCHEMA_FILE)
        found = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        found = [one for one in found if one[1] != "schema_migrations"]
        indexes = [name for _, name, sql in found if sql.startswith("CREATE VIRTUAL TABLE")]
        lines = {one / SCHEMA_FILE: [] if place else [_RECORD] for place, one in enumerate(FOLDERS)}
        for _, name, sql in found:
            if name in indexes or not any(name.startswith(f"{index}_") for index in indexes):
                statement = f"-- full text: {name}" if name in indexes else f"{_portable(sql)};"
                lines[files[name]].append(statement)
        for kind, name, _ in found:
            if kind == "table" and not any(name.startswith(index) for index in indexes):
                lines[files[name]] += [
                    f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join(map(_literal, row))});"
                    for columns, row in _rows(connection, name)
                ]
    return {file: f"{HEAD}\n" + "\n".join(statements) + "\n" for file, statements in lines.items() if statements}


def _portable(sql: str) -> str:
    """A statement of SQLite with what differs between databases in braces."""
    sql = re.sub(r"\bBLOB\b", "{blob}", sql).replace("WITHOUT ROWID", "{clustered}")
    return re.sub(r"\bINTEGER PRIMARY KEY\b", "{row_key} PRIMARY KEY", sql)


def _rows(connection: sqlite3.Connection, table: str) -> list[tuple[list[str], tuple[object, ...]]]:
    cursor = connection.execute(f"SELECT * FROM {table}")
    columns = [column[0] for column in cursor.description]
    return [(columns, row) for row in cursor.fetchall()]


def _literal(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case str() if value == AT:
            return _TIME_OF_STORE
        case str():
            return "'{}'".format(value.replace("'", "''"))
        case _:
            return str(value)


def main() -> int:
    """Write the files."""
    for file, text in build_schemas().items():
        file.write_text(text, encoding="utf-8")
        print(f"{file.relative_to(PACKAGE)}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
