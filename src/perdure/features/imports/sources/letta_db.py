"""The database of a retired Letta server, a file of SQLite or PostgreSQL: agents with blocks, messages and passages.

Tables and columns are read as they are found; what one version lacks is left out.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.incoming.addresses import is_postgres, without_password
from perdure.domain.blocks.units import NewBlock
from perdure.features.agent_files.messages import parse_messages
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import (
    LeftOut,
    SourceAgent,
    SourceConversation,
    SourceItem,
    SourceMemory,
    fill_times,
    key_of,
    text_in,
    time_of,
)
from perdure.scratch import scratch_folder

DELETED = "agents that were deleted there"
PICTURES = "pictures whose bytes are not in the database"
OF_FILES = "passages of files, which are uploaded anew"

_NO_LIMIT = 1 << 40
_SKIPPED = ("embedding", "embedding_config")
"""Columns that are not read: vectors are made anew."""

Row = Mapping[str, Any]


class _Tables:
    """The tables of a database: name -> columns; `select` runs a query with one value for `?`."""

    def __init__(
        self, columns: Mapping[str, Sequence[str]], select: Callable[[str, Any], Iterator[Sequence[Any]]]
    ) -> None:
        self._columns, self._select = columns, select

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table with these columns."""
        return {*columns} <= {*self._columns.get(table, ())} and table in self._columns

    def rows(self, table: str, where: str = "", value: Any = None, *, order: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the rows of a table, by the columns of `order` that it has, without those that are deleted."""
        if table not in self._columns:
            return
        names = [one for one in self._columns[table] if one not in _SKIPPED]
        sorting = ", ".join(f'"{one}"' for one in order if one in names)
        sql = f'SELECT {", ".join(f"{chr(34)}{one}{chr(34)}" for one in names)} FROM "{table}"'
        sql += f' WHERE "{where}" = ?' if where else ""
        sql += f" ORDER BY {sorting}" if sorting else ""
        for row in self._select(sql, value if where else None):
            found = dict(zip(names, row, strict=True))
            if table == "agents" or not found.get("is_deleted"):
                yield found


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield what a file of SQLite holds. Raises: InvalidInput."""
    (name, *more) = files.find("*.db", "*.sqlite", "*.sqlite3") or [""]
    if not name or more:
        raise InvalidInput(f"{files.label}: give the file of the database, such as ~/.letta/sqlite.db")
    if files.is_one and isinstance(files.place, Path):
        yield from _read_sqlite(files.place, name)
        return
    with scratch_folder("import") as folder:
        copy = folder / "letta.db"
        with files.open(name) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield from _read_sqlite(copy, name)


def _read_sqlite(path: Path, name: str) -> Iterator[SourceItem]:
    """Yield what a file of SQLite holds. Raises: InvalidInput."""
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            columns = {
                table: [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
                for table in tables
                if '"' not in table
            }
            yield from _agents(
                _Tables(columns, lambda sql, value: connection.execute(sql, () if value is None else (value,))), name
            )
    except sqlite3.Error as error:
        raise InvalidInput(f"{name} is no database of SQLite that can be read: {error}") from error


def read_server(address: str) -> Iterator[SourceItem]:
    """Yield what a database on PostgreSQL holds. Raises: InvalidInput."""
    import psycopg

    label = without_password(address)
    try:
        with psycopg.connect(address) as connection:
            connection.read_only = True
            columns: dict[str, list[str]] = {}
            for table, column in connection.execute(
                "SELECT table_name, column_name FROM information_schema.columns"
                " WHERE table_schema = ANY (current_schemas(false)) ORDER BY table_name, ordinal_position"
            ):
                columns.setdefault(table, []).append(column)

            def select(sql: str, value: Any) -> Iterator[Sequence[Any]]:
                query: Any = sql.replace("?", "%s") if value is not None else sql
                return iter(connection.execute(query, None if value is None else (value,)).fetchall())

            yield from _agents(_Tables(columns, select), label)
    except psycopg.Error as error:
        raise InvalidInput(f"{label} can't be read: {error!s:.300}") from error


def is_server(place: Any) -> bool:
    """Whether a place is the address of a database on PostgreSQL."""
    return isinstance(place, str) and is_postgres(place)


def _agents(tables: _Tables, name: str) -> Iterator[SourceItem]:
    """Yield the agents of a database with all that is theirs. Raises: InvalidInput."""
    if not tables.has("agents", "id", "name"):
        raise InvalidInput(f"{name} is no database of Letta's server: it has no table `agents` with `id` and `name`")
    for agent in list(tables.rows("agents", order=("created_at", "id"))):
        if agent.get("is_deleted"):
            yield LeftOut(DELETED)
            continue
        yield SourceAgent(
            id=str(agent["id"]),
            name=text_in(agent["name"]) or "agent",
            system=text_in(agent.get("system")) or None,
            description=text_in(agent.get("description")) or None,
            blocks=tuple(_blocks(tables, agent["id"])),
        )
        yield from _conversations(tables, agent)
        yield from _passages(tables, agent["id"])
    if of_files := sum(1 for _ in tables.rows("source_passages")):
        yield LeftOut(OF_FILES, of_files)


def _blocks(tables: _Tables, agent_id: Any) -> Iterator[NewBlock]:
    """Yield the blocks of an agent, one for each label."""
    table = "block" if tables.has("block") else "blocks"
    labels: set[str] = set()
    for link in list(tables.rows("blocks_agents", "agent_id", agent_id)):
        for block in list(tables.rows(table, "id", link["block_id"])):
            label = text_in(link.get("block_label")) or text_in(block.get("label"))
            if label and label not in labels:
                labels.add(label)
                value = block.get("value") if isinstance(block.get("value"), str) else ""
                limit = block.get("limit")
                yield NewBlock(
                    label=label,
                    value=value or "",
                    limit_chars=max(limit if isinstance(limit, int) else 0, len(value or ""), 5_000),
                    description=text_in(block.get("description")) or None,
                    read_only=bool(block.get("read_only")),
                )


def _conversations(tables: _Tables, agent: Row) -> Iterator[SourceItem]:
    """Yield the messages of an agent, by conversations; those of none are the agent's first one. Raises:
    InvalidInput."""
    lines: dict[Any, list[dict[str, Any]]] = {}
    for row in tables.rows("messages", "agent_id", agent["id"], order=("sequence_id", "created_at", "id")):
        lines.setdefault(row.get("conversation_id"), []).append(_line(row))
    titles = {row["id"]: row for row in tables.rows("conversations")} if tables.has("conversations", "id") else {}
    for id_, found in lines.items():
        start = time_of(_iso(agent.get("created_at"))) or datetime(1970, 1, 2, tzinfo=UTC)
        times = fill_times([time_of(line["created_at"]) for line in found], start)
        stamped = [line | {"created_at": at.isoformat()} for line, at in zip(found, times, strict=True)]
        parsed = parse_messages({"messages": stamped, "system": agent.get("system")}, limit_chars=_NO_LIMIT)
        if parsed.images:
            yield LeftOut(PICTURES, parsed.images)
        if parsed.messages:
            about = titles.get(id_, {})
            yield SourceConversation(
                id=key_of(id_ or "default"),
                title=text_in(about.get("summary") or about.get("name")),
                created_at=time_of(_iso(about.get("created_at"))),
                messages=parsed.messages,
                is_first=id_ is None,
                agent=str(agent["id"]),
            )


def _line(row: Row) -> dict[str, Any]:
    """Return a message of the database as an agent file has it."""
    content = _value(row.get("content"))
    if content in (None, "", []):
        content = row.get("text")
    return {
        "role": row.get("role"),
        "content": content,
        "name": row.get("name"),
        "tool_calls": [one for one in _list(row.get("tool_calls")) if isinstance(one, dict)],
        "tool_call_id": row.get("tool_call_id"),
        "tool_returns": [
            one for one in _list(row.get("tool_returns")) if isinstance(one, dict) and one.get("tool_call_id")
        ],
        "created_at": _iso(row.get("created_at")),
    }


def _passages(tables: _Tables, agent_id: Any) -> Iterator[SourceMemory]:
    """Yield the passages of an agent, of any version's tables."""
    found: list[Row] = []
    for link in list(tables.rows("archives_agents", "agent_id", agent_id)):
        if tables.has("archival_passages", "archive_id"):
            found += tables.rows("archival_passages", "archive_id", link["archive_id"], order=("created_at", "id"))
    for table in ("archival_passages", "agent_passages", "passages"):
        if tables.has(table, "agent_id"):
            found += tables.rows(table, "agent_id", agent_id, order=("created_at", "id"))
    for row in {row["id"]: row for row in found if row.get("id")}.values():
        if text := text_in(row.get("text")):
            metadata = _value(row.get("metadata_"))
            yield SourceMemory(
                id=key_of(row["id"]),
                text=text,
                created_at=time_of(_iso(row.get("created_at"))) or datetime(1970, 1, 2, tzinfo=UTC),
                tags=tuple(str(one) for one in _list(row.get("tags"))),
                metadata=metadata if isinstance(metadata, dict) else {},
                agent=str(agent_id),
            )


def _value(value: Any) -> Any:
    """Return a value of a column of JSON, which SQLite has as text."""
    if isinstance(value, str) and value[:1] in '[{"':
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _list(value: Any) -> Sequence[Any]:
    """Return a list in a column of JSON; of another value an empty one."""
    found = _value(value)
    return found if isinstance(found, list) else []


def _iso(value: Any) -> Any:
    """Return a time as a text or number."""
    return value.isoformat() if isinstance(value, datetime) else value
