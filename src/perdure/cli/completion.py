"""What a shell completes beyond commands and options: names of agents, read from the store's file as it is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

NAMES_MAX = 50
BUSY_TIMEOUT_S = 0.2


def agent_names(incomplete: str) -> Iterator[tuple[str, str]]:
    """(name, help) of agents, newest first; the id in place of a name that a shell would take apart.

    A store that is not there or can't be read completes nothing: there is nowhere to show an error.
    """
    import sqlite3
    from contextlib import closing, suppress

    from perdure.core.errors import PerdureError
    from perdure.core.ids import DEFAULT_ORG
    from perdure.settings import Settings

    query = "SELECT name, id, model FROM agents WHERE org_id = ? AND hidden = 0 ORDER BY number DESC LIMIT ?"
    with suppress(sqlite3.Error, PerdureError, OSError):
        path = Settings.from_environment().store_path
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
            for name, agent_id, model in connection.execute(query, (DEFAULT_ORG, NAMES_MAX)).fetchall():
                plain = shlex.quote(name) == name
                yield (name, model) if plain else (agent_id, f"{name}, {model}")
