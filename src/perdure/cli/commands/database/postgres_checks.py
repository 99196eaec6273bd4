"""The checks of `perdure doctor` on a PostgreSQL database. They only read, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.app import NOT_DELETED, find_refusal, look, schema_version
from perdure.cli.commands.checks import UPGRADED, Check
from perdure.cli.commands.database.table_checks import Rows, fix_of, mcp_checks, secrets_check, vectors_check
from perdure.cli.views.fold import plural
from perdure.core.errors import PerdureError
from perdure.core.text.addresses import without_password
from perdure.settings import Settings

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
