"""The look-up of messages by their ids, and of any ids by their beginnings (`tx.id_starts`).

The ids of a run's inputs and answers contain the run's id (`core.ids.id_in_run`). The directory holds only
the run, and the message is searched among the run's messages. All other ids are in the directory themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import PREFIXES, AgentId, MessageId, OrgId, run_of
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import storable
from perdure.storage.tables.message_rows import BEFORE_NEXT_RUN
from perdure.storage.tables.table import Table, find, find_all, find_run_of


def place_of(db: Database, org_id: OrgId, message_id: MessageId) -> tuple[AgentId, int]:
    """The agent and number of a message. Raises: NotFound."""
    place = find(db, org_id, "message", message_id)
    place = place or _place_in(db, find_run_of(db, org_id, message_id), message_id)
    if place is None:
        raise NotFound("message", message_id)
    return AgentId(place[0]), place[1]


def places_of(db: Database, org_id: OrgId, ids: Sequence[MessageId]) -> dict[MessageId, tuple[AgentId, int]]:
    """Agent and number of each of these messages that exists."""
    message_ids = [id_ for id_ in dict.fromkeys(ids) if id_.startswith(f"{PREFIXES['message']}-")]
    places = {MessageId(id_): (AgentId(owner), seq) for id_, owner, seq in find_all(db, org_id, message_ids)}
    run_ids = {id_: run_id for id_ in message_ids if id_ not in places and (run_id := run_of(id_)) is not None}
    runs = {run_id: (agent_id, seq) for run_id, agent_id, seq in find_all(db, org_id, [*run_ids.values()])}
    for id_, run_id in run_ids.items():
        place = _place_in(db, runs.get(run_id), id_)
        if place is not None:
            places[id_] = AgentId(place[0]), place[1]
    return places


def _place_in(db: Database, run: tuple[str, int] | None, id_: MessageId) -> tuple[str, int] | None:
    """Agent and number of a message among those of the run (agent, number); None: it has none with this id."""
    if run is None:
        return None
    params: dict[str, Any] = {"agent_id": run[0], "run_seq": run[1]}
    runs = db.rows(
        "SELECT conversation_seq, first_message_seq FROM runs WHERE agent_id = :agent_id AND seq = :run_seq", params
    )
    if not runs or runs[0][1] is None:  # its input is not a message yet
        return None
    params |= {"conversation": runs[0][0], "own": runs[0][1], "id": storable(id_)}
    # By the conversation's index: by the primary key the messages of all conversations would be read.
    rows = db.rows(
        "SELECT m.seq FROM messages c CROSS JOIN messages m WHERE c.agent_id = :agent_id"
        f" AND c.conversation_seq = :conversation AND c.seq >= :own AND c.{BEFORE_NEXT_RUN}"
        " AND m.agent_id = c.agent_id AND m.seq = c.seq AND m.id = :id",
        params,
    )
    return (run[0], rows[0][0]) if rows else None


_KINDS = " OR ".join(f"id LIKE '{kind}-%'" for kind in ("run", "step", "message", "passage", "fact", "entity"))
_OWNERS = " OR ".join(  # what is deleted stays in the directory until its rows are removed
    f"EXISTS (SELECT 1 FROM {table} o WHERE o.id = ids.owner_id AND o.org_id = :org_id)"
    for table in ("agents", "archives", "graphs")
)


class IdStarts(Table):
    def list(self, pattern: str, *, limit: int) -> Sequence[str]:
        """The ids of runs, steps, messages, passages, facts, entities and blocks that begin with a pattern, in order;
        `_` in it is any character.

        The ids of a run's own messages and steps are in no table: see `core.ids.id_beginning`.
        """
        rows = self._rows(
            f"SELECT id FROM ids WHERE org_id = :org_id AND id LIKE :pattern AND ({_KINDS}) AND ({_OWNERS})"
            " UNION ALL SELECT id FROM blocks WHERE org_id = :org_id AND id LIKE :pattern ORDER BY id LIMIT :limit",
            pattern=f"{pattern}%",
            limit=limit,
        )
        return [row[0] for row in rows]
