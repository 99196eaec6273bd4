"""The checks of `perdure doctor` on the data folder, and on what tables hold, on both databases; and how all its checks
are shown to people. They only read: no table is made, no run starts.
"""

from __future__ import annotations

import base64
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import RenderableType
from rich.filesize import decimal
from rich.text import Text

from perdure.app import (
    KEY_FILE,
    NOT_DELETED,
    SCHEMA_VERSION,
    cipher_of,
    find_damage,
    find_refusal,
    open_for_reading,
    store_error,
)
from perdure.cli.views.view import new_table, plural, visible
from perdure.core import errors
from perdure.core.features import Point, feature_org_tables
from perdure.core.incoming.addresses import is_postgres, without_password
from perdure.core.text.pip_line import NAMED_HERE
from perdure.settings import Settings

UPGRADED = "when it is opened"
"""Stands in what is said of a store of an older version."""
DOCS = "see docs/operations.md, PostgreSQL"
DAMAGED = "see docs/operations.md, a damaged file"
RESTORE = "`perdure restore FILE` puts a backup in its place: see docs/operations.md"

QUICK_CHECK_BYTES = 64 * 2**20
"""A file up to this size is read in about a second."""
FREE_BYTES = 100 * 2**20
FULL_BYTES = 2**16
"""Less than a small commit takes in the log."""
BUSY_TIMEOUT_S = 1.0

_SIGNS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "broken": ("✗", "bold red")}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Args:
        status: "note" is worth knowing, or not set up; "broken" makes the exit code 1.
        fix: what to do; empty if there is nothing to do.
    """

    name: str
    status: Literal["ok", "note", "broken"]
    text: str
    fix: str = ""


LINE_CHARS = 100


def checks_view(checks: Sequence[Check]) -> Iterator[RenderableType]:
    """A line for each check, its fix below it, and the result of all at the end; no line is longer than 100."""
    table = new_table("check", "text", head=False)
    table.columns[1].max_width = LINE_CHARS - max(len(check.name) for check in checks) - len("✓   ")
    for check in checks:
        name = (f" {check.name}", "bold" if check.status == "broken" else "")
        # Other texts write PYTHON, and refer to these checks for the path of the interpreter.
        text, fix = (
            visible(one.replace(NAMED_HERE, "").replace("`PYTHON ", f"`{sys.executable} "))
            for one in (check.text, check.fix)
        )
        table.add_row(Text.assemble(_SIGNS[check.status], name), Text(text))
        if fix:
            table.add_row("", Text(f"→ {fix}", style="cyan"))
    yield table
    broken = sum(check.status == "broken" for check in checks)
    if broken:
        yield Text(f"{broken} {'thing is' if broken == 1 else 'things are'} broken.", style="bold red")
    else:
        yield Text("All is well.", style="green")


Rows = Callable[..., Sequence[tuple[Any, ...]]]
"""Runs an SQL statement with the values of its `?` as further arguments, and returns the rows."""

STORE_CHECKS: Point[[Rows, Collection[str]], Iterable[Check]] = Point("store_checks")
"""The checks of features on what their tables hold, of those tables that the store has. They contact nobody."""

SEALED = {
    **{"secrets": "value", "sandbox_variables": "sealed", "providers": "sealed"},
    **{table.name: table.sealed for table in feature_org_tables() if table.sealed},
}
"""Table -> its column with what is stored encrypted, as base64."""
OTHER_KEY = (
    "set PERDURE_SECRET_KEY to the key that they were encrypted with, or set it as PERDURE_SECRET_KEY_OLD, then"
    " `perdure secret rotate`; else set each secret anew"
)


def secrets_check(rows: Rows, tables: Collection[str], settings: Settings, file: Path | None = None) -> Check | None:
    """Whether there is a key for each encrypted value, and whether only we can read it; None: nothing is encrypted.
    Nothing is decrypted: each value names its key.

    Args:
        tables: the names of the tables that the store has.
        file: the file of the key, used if no variable has it.
    """
    stored = [
        text
        for table, column in SEALED.items()
        if table in tables
        for (text,) in rows(f"SELECT {column} FROM {table} WHERE {column} <> ''")
    ]
    if not stored:
        return None
    problems = []
    try:
        cipher = cipher_of(settings, settings.store_address)
    except errors.PerdureError as error:
        return Check("secrets", "broken", str(error), OTHER_KEY)
    for text in stored:
        try:
            cipher.find_key(base64.b64decode(text))
        except ValueError:
            problems.append("it is damaged")
        except errors.SecretUnreadable as error:
            problems.append(error.why)
        except errors.SecretKeyMissing:
            return Check("secrets", "broken", "there are secrets, and no key", "set PERDURE_SECRET_KEY")
    if problems:
        text = f"{len(problems):,} of {plural(len(stored), 'value')} can't be decrypted: {problems[0]}"
        return Check("secrets", "broken", text, OTHER_KEY)
    if settings.secret_key or file is None:
        return Check("secrets", "ok", "encrypted with PERDURE_SECRET_KEY")
    if file.stat().st_mode & 0o077:
        return Check("secrets", "note", f"{file} can be read by others", f"chmod 600 {file}")
    return Check("secrets", "ok", f"encrypted with {file}")


def vectors_check(rows: Rows, *, models: str) -> Check | None:
    """How many texts have a vector, wait for one, or failed; None where nothing is embedded.

    Args:
        models: SQL that lists the distinct values of `model`.
    """
    scopes, embedded, listed = rows(
        f"SELECT count(*), coalesce(sum(row_count), 0), {models} FROM vector_scopes WHERE {NOT_DELETED}"
    )[0]
    if not scopes:
        return None
    living = f"number NOT IN (SELECT number FROM vector_scopes WHERE NOT ({NOT_DELETED}))"
    waiting, failed = rows(
        "SELECT count(CASE WHEN not_before < '9' THEN 1 END), count(CASE WHEN not_before = '9' THEN 1 END)"
        f" FROM embedding_queue WHERE {living}"
    )[0]
    without = rows(
        f"SELECT (SELECT coalesce(sum(message_count), 0) FROM agents WHERE embedded = 0 AND {NOT_DELETED})"
        f" + (SELECT coalesce(sum(passage_count), 0) FROM archives WHERE embedding IS NULL AND {NOT_DELETED})"
    )[0][0]
    text = f"{plural(embedded, 'text')} with a vector of {listed.replace(',', ', ')}"
    text += f", {waiting:,} waiting" if waiting else ""
    if failed:
        why = rows(f"SELECT failure FROM embedding_queue WHERE not_before = '9' AND {living} LIMIT 1")[0][0]
        return Check(
            "vectors", "note", f"{text}, {failed:,} given up: {why}", "`perdure store reindex` tries them again"
        )
    if without:
        text += f"; {without:,} texts are from before and have none"
        return Check("vectors", "note", text, "`perdure store reindex` embeds them")
    return Check("vectors", "ok", text)


def _contents(
    rows: Rows, tables: Collection[str], settings: Settings, *, models: str, key_file: Path | None = None
) -> Iterator[Check]:
    """Check what the store's tables hold. `models` is for `vectors_check`; `key_file` is `file` for `secrets_check`."""
    if "vector_scopes" in tables and (vectors := vectors_check(rows, models=models)) is not None:
        yield vectors
    if (secrets := secrets_check(rows, tables, settings, key_file)) is not None:
        yield secrets
    for checks in STORE_CHECKS(rows, tables):
        yield from checks


def _schema_check(rows: Rows, place: str, head: str, size: str = "") -> Check:
    """The version of the tables and how many agents there are, or why this Perdure does not open them. The texts name
    the store: `place` in an error, `head` if all is well."""
    if refusal := find_refusal(place, rows):
        again = isinstance(refusal, errors.StoreIncomplete)
        return Check("data", "broken", str(refusal), "run that command again" if again else "upgrade Perdure")
    newest, found = SCHEMA_VERSION, rows("SELECT max(number) FROM schema_migrations")[0][0] or 0
    agents = rows(f"SELECT count(*) FROM agents WHERE {NOT_DELETED}")[0][0]
    upgrade = f", brought to {newest} {UPGRADED}" if found < newest else ""
    return Check("data", "ok", f"{head}, schema {found}{size}, {plural(agents, 'agent')}{upgrade}")


def _database_checks(settings: Settings) -> Iterator[Check]:
    """The server, the tables, the rights, and what is in the tables."""
    place = without_password(settings.store)
    try:
        with open_for_reading(settings.store) as rows:
            yield from _server_checks(rows, place, settings)
            most, kept = rows(
                "SELECT current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int"
            )[0]
    except errors.PerdureError as error:
        yield Check("data", "broken", f"{place}: {error}", DOCS)
        return
    each = settings.postgres_connections + 1
    count = (most - kept) // each
    text = f"{most} at most, of which a process takes up to {each}: enough for {plural(count, 'process', 'processes')}"
    fix = "raise max_connections, or lower PERDURE_POSTGRES_CONNECTIONS" if count < 2 else ""
    yield Check("connections", "note" if fix else "ok", text, fix)


def _server_checks(rows: Rows, place: str, settings: Settings) -> Iterator[Check]:
    """All checks of a database that answers."""
    version, schema = rows("SELECT current_setting('server_version'), current_schema()")[0]
    server = f"{place}, PostgreSQL {version.split()[0]}"
    if schema is None:
        yield Check("data", "broken", f"{server}: no schema of the search_path exists", DOCS)
        return
    tables = {row[0] for row in rows("SELECT tablename FROM pg_tables WHERE schemaname = ?", schema)}
    may_create = rows("SELECT has_schema_privilege(?, 'CREATE')", schema)[0][0]
    if "schema_migrations" not in tables:
        yield Check("data", "ok", f"{server}: no store yet; it is made when it is first opened")
        if not may_create:
            yield Check("writing", "broken", f"no right to make tables in the schema {schema!r}", DOCS)
        return
    data = _schema_check(rows, place, server)
    yield data
    if data.status != "ok":
        return
    if rows("SELECT pg_is_in_recovery()")[0][0]:
        yield Check("writing", "broken", "the server is a replica, which can't be written", "name the primary")
    elif not rows("SELECT has_table_privilege('agents', 'INSERT, UPDATE, DELETE')")[0][0]:
        yield Check("writing", "broken", "no right to write the table agents", DOCS)
    elif UPGRADED in data.text and not may_create:
        yield Check("writing", "broken", f"an upgrade needs the right to make tables in {schema!r}", DOCS)
    else:
        yield Check("writing", "ok", "the store can be written")
    yield from _contents(rows, tables, settings, models="string_agg(DISTINCT model, ',')")


def _free_bytes(folder: Path) -> int:
    """How much room is left where a folder is; as if there were enough, if the system doesn't tell."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return FREE_BYTES


def store_checks(settings: Settings, free_bytes: Callable[[Path], int] = _free_bytes) -> Iterator[Check]:
    """Check the folder, the file, its tables and the room on the disk; or the database on a server.

    Args:
        free_bytes: how much room is left where a folder is.
    """
    if is_postgres(settings.store):
        yield from _database_checks(settings)
        return
    try:
        path = settings.store_path
        exists = path.exists()
    except (errors.InvalidInput, OSError, ValueError) as error:
        yield Check("data", "broken", str(error), "set PERDURE_HOME to a folder you may write to")
        return
    folder = next(parent for parent in path.parents if parent.exists() or parent == parent.parent)
    free = free_bytes(folder)
    if exists:
        yield from _file_checks(path, settings, free)
    elif loss := find_damage(path):
        yield Check("data", "broken", loss, DAMAGED)
    elif folder.is_dir() and os.access(folder, os.W_OK):
        yield Check("data", "ok", f"no store yet: {path} is created with the first agent")
    else:
        why = "read-only for you" if folder.is_dir() else "not a folder"
        yield Check("data", "broken", f"{path} can't be made: {folder} is {why}", "set PERDURE_HOME to another one")
    if free < FREE_BYTES:
        yield Check("disk", "broken", f"only {decimal(free)} are free where the data is", "make room: writes fail soon")


def _file_checks(path: Path, settings: Settings, free: int) -> Iterator[Check]:
    """Check the store file: whether it is Perdure's, whole and writable, and what it holds. `free`: bytes on disk."""
    try:
        size = path.stat().st_size
        read_only = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(read_only, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:

            def rows(sql: str, *values: Any) -> Sequence[tuple[Any, ...]]:
                return connection.execute(sql, values).fetchall()

            if loss := find_damage(path, connection):
                yield Check("data", "broken", loss, DAMAGED)
                return
            tables = {row[0] for row in rows("SELECT name FROM sqlite_master")}
            if "schema_migrations" not in tables:
                fix = "set PERDURE_HOME to another folder, or move the file away" if tables else ""
                what = "the database of another program" if tables else "empty"
                yield Check("data", "broken" if tables else "ok", f"{path} is {what}", fix)
                return
            data = _schema_check(rows, str(path), str(path), f", {decimal(size)}")
            if data.status != "ok":
                yield data
                return
            fault = rows("PRAGMA quick_check(1)")[0][0] if size <= QUICK_CHECK_BYTES else "ok"
            models = "group_concat(DISTINCT model)"
            contents = [*_contents(rows, tables, settings, models=models, key_file=path.parent / KEY_FILE)]
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, sqlite3.Error) and isinstance(damage := store_error(error, path), errors.StoreDamaged):
            yield Check("data", "broken", str(damage), RESTORE)
        else:
            fix = "check who owns it; a backup can take its place: see docs/operations.md"
            yield Check("data", "broken", f"{path} can't be read: {error}", fix)
        return
    if fault != "ok":
        yield Check("data", "broken", f"{data.text}: damaged: {fault}", RESTORE)
        return
    state = "whole" if size <= QUICK_CHECK_BYTES else "too large to be read through here: PRAGMA integrity_check does"
    yield Check("data", "ok", f"{data.text}, {state}")
    yield _write_check(path, free)
    yield from contents


def _write_check(path: Path, free: int) -> Check:
    """Whether the store file can be written, tried out; `free`: bytes left on its disk."""
    if free < FULL_BYTES:
        return Check("writing", "broken", "the disk is full: nothing can be written", "make room on it")
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        fix = "give yourself the right to write the file and its folder"
        return Check("writing", "broken", f"{path} or its folder is read-only for you", fix)
    try:
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN")  # an immediate one succeeds on a read-only file
            connection.execute("UPDATE counters SET value = value WHERE name = ''")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            return Check("writing", "note", "another process is writing just now", "try again; see who has it open")
        return Check("writing", "broken", f"{path} can't be written: {error}", "check the disk and who owns the file")
    return Check("writing", "ok", "the store can be written")
