"""The database of a retired Letta server, a file of SQLite or PostgreSQL: agents with blocks, messages and passages.

Tables and columns are read as they are found; what one version lacks is left out.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from perdure.core.blocks import DEFAULT_LIMIT_CHARS
from perdure.core.errors import ExtraMissing, InvalidInput
from perdure.core.incoming.addresses import without_password
from perdure.domain.blocks.units import NewBlock
from perdure.features.agent_files.messages import parse_messages
from perdure.features.imports.sources.files import SourceFiles
from perdure.features.imports.sources.items import Omission, SourceAgent, SourceConversation, SourceItem, SourceMemory
from perdure.features.imports.sources.plain import key_of, list_in, object_in, text_in, time_of
from perdure.scratch import scratch_folder

DELETED = "agents that were deleted there"
TOOLS = "tools with code of its own, which are made anew"
PICTURES = "pictures whose bytes are not in the database"
OF_FILES = "passages of files, which are uploaded anew"

_NO_LIMIT = 1 << 40
_NO_TIME = datetime(1970, 1, 2, tzinfo=UTC)
_SKIPPED = ("embedding", "embedding_config")
"""Columns that are not read: vectors are made anew."""

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Database:
    """A database: table -> columns; `select` runs a query, with one value or none for its `?`."""

    columns: Mapping[str, Sequence[str]]
    select: Callable[[str, tuple[Any, ...]], Iterable[Sequence[Any]]]

    def rows(self, table: str, column: str = "", value: Any = None, *, order: Sequence[str] = ()) -> list[Record]:
        """Return the rows of a table, those with a value in a column, by the columns of `order` that it has; none where
        there is no such table or column. Those that are deleted are left out, but for agents."""
        names = [one for one in self.columns.get(table, ()) if one not in _SKIPPED]
        if not names or (column and column not in names):
            return []
        sql = f"SELECT {', '.join(map(_quote_name, names))} FROM {_quote_name(table)}"
        sql += f" WHERE {_quote_name(column)} = ?" if column else ""
        if sorting := [_quote_name(one) for one in order if one in names]:
            sql += f" ORDER BY {', '.join(sorting)}"
        found = [dict(zip(names, row, strict=True)) for row in self.select(sql, (value,) if column else ())]
        return [one for one in found if table == "agents" or not one.get("is_deleted")]


def _quote_name(name: str) -> str:
    """Return the name of a table or column for SQL."""
    return '"{}"'.format(name.replace('"', '""'))


def read(files: SourceFiles) -> Iterator[SourceItem]:
    """Yield what a file of SQLite holds. Raises: InvalidInput."""
    names = files.find("*.db", "*.sqlite", "*.sqlite3")
    if len(names) != 1:
        raise InvalidInput(f"{files.label}: give the file of the database, such as ~/.letta/sqlite.db")
    if files.is_one and isinstance(files.place, Path):
        yield from _read_sqlite(files.place)
        return
    with scratch_folder("import") as folder:
        copy = folder / PurePosixPath(names[0]).name
        with files.open(names[0]) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield from _read_sqlite(copy)


def _read_sqlite(path: Path) -> Iterator[SourceItem]:
    """Yield what a file of SQLite holds. Raises: InvalidInput."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            columns = {
                name: [row[1] for row in connection.execute(f"PRAGMA table_info({_quote_name(name)})")]
                for (name,) in tables
            }
            yield from _agents(_Database(columns, connection.execute), path.name)
    except sqlite3.Error as error:
        raise InvalidInput(f"{path.name} is not a database of SQLite that can be read: {error}") from error


def read_server(address: str) -> Iterator[SourceItem]:
    """Yield what a database on PostgreSQL holds. Raises: InvalidInput; ExtraMissing."""
    try:
        import psycopg
    except ImportError as error:
        raise ExtraMissing("a database on PostgreSQL", extra="postgres") from error

    label = without_password(address)
    columns: dict[str, list[str]] = {}
    try:
        with psycopg.connect(address) as connection:
            connection.read_only = True
            for table, column in connection.execute(
                "SELECT table_name, column_name FROM information_schema.columns"
                " WHERE table_schema = ANY (current_schemas(false)) ORDER BY table_name, ordinal_position"
            ):
                columns.setdefault(table, []).append(column)

            def select(sql: str, values: tuple[Any, ...]) -> Iterable[Sequence[Any]]:
                """Run a query, whose parameters are written as `?`, on PostgreSQL."""
                return connection.execute(sql.replace("%", "%%").replace("?", "%s").encode(), values)

            yield from _agents(_Database(columns, select), label)
    except psycopg.Error as error:
        raise InvalidInput(f"{label} can't be read: {error!s:.300}") from error


def _agents(database: _Database, name: str) -> Iterator[SourceItem]:
    """Yield the agents of a database with all that is theirs. Raises: InvalidInput."""
    if not {"id", "name"} <= {*database.columns.get("agents", ())}:
        raise InvalidInput(f"{name} is not a database of Letta's server: it has no table `agents` with `id` and `name`")
    for agent in database.rows("agents", order=("created_at", "id")):
        if agent.get("is_deleted"):
            yield Omission(DELETED)
            continue
        yield SourceAgent(
            id=str(agent["id"]),
            name=text_in(agent["name"]),
            system=text_in(agent.get("system")) or None,
            description=text_in(agent.get("description")) or None,
            blocks=tuple(_blocks(database, agent["id"]).values()),
        )
        yield from _conversations(database, agent)
        yield from _passages(database, agent["id"])
    own = [row for row in database.rows("tools") if text_in(row.get("tool_type")) in ("", "custom")]
    yield Omission(TOOLS, len(own))
    yield Omission(OF_FILES, len(database.rows("source_passages")))


def _blocks(database: _Database, agent_id: Any) -> Mapping[str, NewBlock]:
    """Return the blocks of an agent by their labels."""
    found: dict[str, NewBlock] = {}
    for link in database.rows("blocks_agents", "agent_id", agent_id):
        for block in database.rows("block" if "block" in database.columns else "blocks", "id", link.get("block_id")):
            label = text_in(link.get("block_label")) or text_in(block.get("label"))
            value, limit = str(block.get("value") or ""), block.get("limit")
            if label:
                found[label] = NewBlock(
                    label=label,
                    value=value,
                    limit_chars=max(limit if isinstance(limit, int) else 0, len(value), DEFAULT_LIMIT_CHARS),
                    description=text_in(block.get("description")) or None,
                    read_only=bool(block.get("read_only")),
                )
    return found


def _conversations(database: _Database, agent: Record) -> Iterator[SourceItem]:
    """Yield an agent's messages by conversation; those without one are its first. Raises: InvalidInput."""
    talks: dict[Any, list[dict[str, Any]]] = {}
    at = _time(agent) or _NO_TIME
    for row in database.rows("messages", "agent_id", agent["id"], order=("sequence_id", "created_at", "id")):
        at = _time(row) or at
        talks.setdefault(row.get("conversation_id"), []).append(_line(row, at))
    about = {row["id"]: row for row in database.rows("conversations") if "id" in row}
    for id_, lines in talks.items():
        parsed = parse_messages({"messages": lines, "system": agent.get("system")}, limit_chars=_NO_LIMIT)
        yield Omission(PICTURES, parsed.images)
        yield SourceConversation(
            id=key_of(id_ or "default"),
            title=text_in(about.get(id_, {}).get("summary")),
            created_at=_time(about.get(id_, {})),
            messages=parsed.messages,
            is_first=id_ is None,
            agent=str(agent["id"]),
        )


def _line(row: Record, at: datetime) -> dict[str, Any]:
    """Return a message of the database as an agent file has it."""
    returns = [one for one in map(object_in, list_in(_value(row.get("tool_returns")))) if one.get("tool_call_id")]
    return {
        **{name: row.get(name) for name in ("role", "name", "tool_call_id")},
        "content": _value(row.get("content")) or row.get("text"),
        "tool_calls": [one for one in list_in(_value(row.get("tool_calls"))) if isinstance(one, dict)],
        "tool_returns": returns,
        "created_at": at.isoformat(),
    }


def _passages(database: _Database, agent_id: Any) -> Iterator[SourceMemory]:
    """Yield the passages of an agent, of any version's tables."""
    found: dict[Any, Record] = {}
    places = [
        ("archival_passages", "archive_id", one.get("archive_id"))
        for one in database.rows("archives_agents", "agent_id", agent_id)
    ]
    places += [(table, "agent_id", agent_id) for table in ("archival_passages", "agent_passages", "passages")]
    for place in places:
        found |= {row.get("id"): row for row in database.rows(*place, order=("created_at", "id"))}
    for id_, row in found.items():
        if text := text_in(row.get("text")):
            yield SourceMemory(
                id=key_of(id_),
                text=text,
                created_at=_time(row) or _NO_TIME,
                tags=tuple(map(str, list_in(_value(row.get("tags"))))),
                metadata=dict(object_in(_value(row.get("metadata_")))),
                agent=str(agent_id),
            )


def _value(value: Any) -> Any:
    """Return the value of a JSON column, which SQLite stores as text."""
    if isinstance(value, str) and value[:1] in ("[", "{", '"'):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _time(row: Record) -> datetime | None:
    """Return when a row was made; None: that is unknown."""
    value = row.get("created_at")
    return time_of(value.isoformat() if isinstance(value, datetime) else value)
