"""The checks of `perdure doctor` on what tables hold, on both databases, and on PostgreSQL. They only read."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from perdure.app import NOT_DELETED, cipher_of, find_refusal, look, schema_version
from perdure.cli.commands.checks import UPGRADED, Check
from perdure.cli.views.fold import plural
from perdure.core.errors import PerdureError, SecretKeyMissing, SecretUnreadable, StoreError, StoreIncomplete
from perdure.core.text.addresses import without_password
from perdure.core.tools.pip_line import pip_line
from perdure.settings import Settings

Rows = Callable[..., Sequence[tuple[Any, ...]]]
"""The rows of a statement with `?` for each of the values after it."""

SEALED = {"secrets": "value", "sandbox_variables": "sealed", "mcp_servers": "sealed", "providers": "sealed"}
"""Table -> its column with what is stored encrypted, as base64."""
OTHER_KEY = (
    "set PERDURE_SECRET_KEY to the key that they were encrypted with, or set it as PERDURE_SECRET_KEY_OLD, then"
    " `perdure secret rotate`; else set each secret anew"
)


def secrets_check(rows: Rows, tables: Collection[str], settings: Settings, *, source: str) -> Check | None:
    """Whether there are keys here for all that is stored encrypted; None: there is nothing. Nothing is decrypted: each
    value names its key.

    Args:
        tables: those that the store has.
        source: where the key is.
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
    except PerdureError as error:
        return Check("secrets", "broken", str(error), OTHER_KEY)
    for text in stored:
        try:
            cipher.find_key(base64.b64decode(text))
        except ValueError:
            problems.append("it is damaged")
        except SecretUnreadable as error:
            problems.append(error.why)
        except SecretKeyMissing:
            return Check("secrets", "broken", "there are secrets, and no key", "set PERDURE_SECRET_KEY")
    if problems:
        text = f"{len(problems):,} of {plural(len(stored), 'value')} can't be decrypted: {problems[0]}"
        return Check("secrets", "broken", text, OTHER_KEY)
    return Check("secrets", "ok", f"encrypted with {source}")


def mcp_checks(rows: Rows) -> Iterator[Check]:
    """The state of each MCP server; no server is contacted."""
    installed = importlib.util.find_spec("mcp") is not None
    for server_id, name, transport, listed_at, failure in rows(
        "SELECT id, name, transport, listed_at, failure FROM mcp_servers ORDER BY number"
    ):
        count, waiting, removed = rows(
            "SELECT count(*), count(CASE WHEN seen IS NOT NULL AND (pinned IS NULL OR pinned <> seen) THEN 1 END),"
            " count(CASE WHEN tool_id IS NOT NULL AND tool_id NOT IN (SELECT id FROM tools) THEN 1 END)"
            " FROM mcp_tools WHERE server_id = ?",
            server_id,
        )[0]
        text = f"{name} ({transport}): {plural(count, 'tool')}"
        text += f", {removed:,} of them removed here" if removed else ""
        if not installed:
            yield Check("mcp", "broken", f"{text}, which can't be called", pip_line("'perdure[mcp]'"))
        elif failure:
            yield Check("mcp", "note", f"{text}; the last try failed: {failure}", f"`perdure mcp refresh {name}`")
        elif waiting:
            yield Check("mcp", "note", f"{text}, {waiting:,} to approve", f"`perdure mcp approve {name}` shows them")
        else:
            yield Check("mcp", "ok", f"{text}, read {listed_at[:16]} UTC" if listed_at else f"{text}, not read yet")


def fix_of(refusal: StoreError) -> str:
    """What helps where a store is refused."""
    return "run that command again" if isinstance(refusal, StoreIncomplete) else "upgrade Perdure"


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


DOCS = "see docs/operations.md, PostgreSQL"


def database_checks(settings: Settings) -> Iterator[Check]:
    """The server, the tables, the rights, and what is in the tables."""
    place = without_password(settings.store)
    try:
        with look(settings.store) as rows:
            yield from _checks(rows, place, settings)
            yield _connections_check(rows, settings.postgres_connections + 1)
    except PerdureError as error:
        yield Check("data", "broken", f"{place}: {error}", DOCS)


def _checks(rows: Rows, place: str, settings: Settings) -> Iterator[Check]:
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
    if refusal := find_refusal(place, rows):
        yield Check("data", "broken", str(refusal), fix_of(refusal))
        return
    newest, found = schema_version(), rows("SELECT max(number) FROM schema_migrations")[0][0] or 0
    agents = rows(f"SELECT count(*) FROM agents WHERE {NOT_DELETED}")[0][0]
    summary = f"{server}, schema {found}, {plural(agents, 'agent')}"
    yield Check("data", "ok", f"{summary}{f', brought to {newest} {UPGRADED}' if found < newest else ''}")
    yield _write_check(rows, schema, may_upgrade=may_create or found == newest)
    if (vectors := vectors_check(rows, models="string_agg(DISTINCT model, ',')")) is not None:
        yield vectors
    if (secrets := secrets_check(rows, tables, settings, source="PERDURE_SECRET_KEY")) is not None:
        yield secrets
    yield from mcp_checks(rows)


def _connections_check(rows: Rows, each: int) -> Check:
    """How many processes the server has connections for."""
    most, kept = rows(
        "SELECT current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int"
    )[0]
    count = (most - kept) // each
    text = f"{most} at most, of which a process takes up to {each}: enough for {plural(count, 'process', 'processes')}"
    if count < 2:
        return Check("connections", "note", text, "raise max_connections, or lower PERDURE_POSTGRES_CONNECTIONS")
    return Check("connections", "ok", text)


def _write_check(rows: Rows, schema: str, *, may_upgrade: bool) -> Check:
    """Whether the store can be written."""
    if rows("SELECT pg_is_in_recovery()")[0][0]:
        return Check("writing", "broken", "the server is a replica, which can't be written", "name the primary")
    if not rows("SELECT has_table_privilege('agents', 'INSERT, UPDATE, DELETE')")[0][0]:
        return Check("writing", "broken", "no right to write the table agents", DOCS)
    if not may_upgrade:
        return Check("writing", "broken", f"an upgrade needs the right to make tables in {schema!r}", DOCS)
    return Check("writing", "ok", "the store can be written")
