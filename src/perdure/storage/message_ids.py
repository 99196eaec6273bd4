"""Where the message of an id is found.

The ids of what a run is asked and answers lead to the run (`core.ids.input_id`, `answer_id`): the directory has the run
only, and the message is looked for among the run's. All others are in the directory themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.errors import NotFound
from perdure.core.ids import PREFIXES, AgentId, MessageId, OrgId, RunId, is_of_run, run_of
from perdure.core.messages import Message
from perdure.core.text import storable
from perdure.storage.database import Database, find, find_run_of, listed, register

__all__ = ["place_of", "places_of", "register_others"]

# Its messages stand between its first one and the next run's first.
_OF_RUN = (
    "SELECT m.seq FROM runs r JOIN messages m ON m.agent_id = r.agent_id AND m.conversation_seq = r.conversation_seq"
    " AND m.seq >= r.first_message_seq AND m.seq < COALESCE((SELECT n.first_message_seq FROM runs n"
    " WHERE n.agent_id = r.agent_id AND n.seq > r.seq AND n.conversation_seq = r.conversation_seq"
    " AND n.first_message_seq > r.first_message_seq ORDER BY n.seq LIMIT 1), m.seq + 1)"
    " WHERE r.agent_id = :agent_id AND r.seq = :run_seq AND m.id = :id"
)


def register_others(
    db: Database, org_id: OrgId, agent_id: AgentId, run_id: RunId | None, messages: Sequence[Message]
) -> None:
    """Put those messages into the directory whose ids do not lead to the run that they are of."""
    others = [(one.id, one.seq) for one in messages if run_id is None or not is_of_run(run_id, one.id)]
    if others:
        register(db, org_id, agent_id, others)


def place_of(db: Database, org_id: OrgId, message_id: MessageId) -> tuple[AgentId, int]:
    """Whose message it is, and its number. Raises: NotFound."""
    found = find(db, org_id, "message", message_id)
    found = found or _place_in(db, find_run_of(db, org_id, message_id), message_id)
    if found is None:
        raise NotFound("message", message_id)
    return AgentId(found[0]), found[1]


def places_of(db: Database, org_id: OrgId, ids: Sequence[MessageId]) -> dict[MessageId, tuple[AgentId, int]]:
    """The same of those among many that there are."""
    asked = [id_ for id_ in dict.fromkeys(ids) if id_.startswith(f"{PREFIXES['message']}-")]
    found = {MessageId(id_): (AgentId(owner), seq) for id_, owner, seq in listed(db, org_id, asked)}
    left = {id_: run_id for id_ in asked if id_ not in found and (run_id := run_of(id_)) is not None}
    runs = {run_id: (agent_id, seq) for run_id, agent_id, seq in listed(db, org_id, [*left.values()])}
    for id_, run_id in left.items():
        place = _place_in(db, runs.get(run_id), id_)
        if place is not None:
            found[id_] = AgentId(place[0]), place[1]
    return found


def _place_in(db: Database, run: tuple[str, int] | None, id_: MessageId) -> tuple[str, int] | None:
    """The same among the messages of a run, given by its agent and number."""
    if run is None:
        return None
    rows = db.rows(_OF_RUN, {"agent_id": run[0], "run_seq": run[1], "id": storable(id_)})
    return (run[0], rows[0][0]) if rows else None
