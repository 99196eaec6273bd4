"""A message as a row of its table; conditions of such rows: in view, in a conversation; and look-ups of rows by ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.core.conversations import ConversationKey
from perdure.core.errors import NotFound, StoreDamaged
from perdure.core.features import feature_roots
from perdure.core.ids import PREFIXES, AgentId, MessageId, OrgId, run_of
from perdure.core.messages import (
    Message,
    MessageFilter,
    Part,
    ToolResult,
    parts_from_json,
    parts_to_json,
    text_of_json,
    text_without_images,
)
from perdure.core.text.words import index_words
from perdure.core.tools.engine_specs import REPEATING_TOOLS
from perdure.storage.database import row_format
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.table import OWN_AGENT_OF, Table, find, find_all, find_run_of, rows_of_each

_PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError)
_UNREADABLE = f"the store is damaged: a message in it can't be read: {row_format.DAMAGED_HELPS}"
_KINDS = " OR ".join(f"id LIKE '{kind}-%'" for kind in ("run", "step", "message", "passage", "fact", "entity"))
_OWNERS = " OR ".join(  # what is deleted stays in the directory until its rows are removed
    f"EXISTS (SELECT 1 FROM {table} o WHERE o.id = ids.owner_id AND o.org_id = :org_id)"
    for table in ("agents", "archives", *(root.name for root in feature_roots() if root.with_ids))
)


def parts_of(stored: str) -> tuple[Part, ...]:
    """The parts of a message, from the column that stores them. Raises: StoreDamaged."""
    try:
        return parts_from_json(row_format.restore(stored))
    except _PARSE_ERRORS as error:
        raise StoreDamaged(_UNREADABLE) from error


def row_text(stored: str) -> str:
    """The text of a message, from the column of its parts, which are not built. Raises: StoreDamaged."""
    try:
        return text_of_json(row_format.restore(stored))
    except _PARSE_ERRORS as error:
        raise StoreDamaged(_UNREADABLE) from error


PARTS = row_format.Codec(lambda parts: row_format.storable(parts_to_json(parts)), parts_of)
MESSAGE = row_format.RowFormat(Message, {PARTS: "parts"})


MESSAGE_CHECKSUMS = row_format.ChecksumColumns(
    "messages",
    ("agent_id", "seq"),
    (
        *("agent_id", "seq", "id", "conversation_seq", "role", "kind", "parts", "run_seq", "run_id", "step_id"),
        *("name", "otid", "sender_id", "tokens", "created_at", "occurred_at"),
    ),
)
REVISION_CHECKSUMS = row_format.ChecksumColumns(
    "message_revisions",
    ("agent_id", "seq", "revision"),
    ("agent_id", "seq", "revision", "parts", "settings_revision", "author_kind", "author_id", "created_at"),
)


def words_of(message: Message) -> tuple[int, str, str] | None:
    """The full-text row of a message: (number, role, words); None for the engine's messages and texts without words."""
    if message.kind != "message":
        return None
    words = words_in(message.parts)
    return (message.seq, message.role, words) if words else None


def words_in(parts: Sequence[Part]) -> str:
    """The words of these parts for the full-text index, without results that only repeat other texts."""
    own = [part for part in parts if not (isinstance(part, ToolResult) and part.name in REPEATING_TOOLS)]
    return index_words(text_without_images(own))


def read_rows(db: Database, where: str, params: dict[str, Any], *, of_conversation: bool = False) -> Sequence[Message]:
    """The messages for which `where` is true, SQL with any ORDER BY and LIMIT and values `params`, with the parts of
    their newest revisions. `of_conversation`: it names a conversation, so its index is used."""
    source = f"messages{db.by_index('messages_by_conversation') if of_conversation else ''}"
    messages = [MESSAGE.read(row) for row in db.rows(f"SELECT {MESSAGE.columns} FROM {source} WHERE {where}", params)]
    return with_revisions(db, messages)


def with_revisions(db: Database, messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with the parts of their newest revisions, and the names of the speakers if these have others."""
    sql = (
        "SELECT v.agent_id, v.seq, v.parts, v.name FROM message_revisions v JOIN messages m"
        " ON m.agent_id = v.agent_id AND m.seq = v.seq AND m.revision = v.revision WHERE {keys}"
    )
    keys = [(message.agent_id, message.seq) for message in messages if message.revision]
    found = rows_of_each(db, sql, "v.agent_id = ? AND v.seq = ?", keys)
    return [_with_revision(one, *found[one.agent_id, one.seq][0]) if one.revision else one for one in messages]


def _with_revision(message: Message, parts: str, name: str | None) -> Message:
    """Return the message with a revision's parts, and its name if it has one, as the columns store them."""
    return replace(message, parts=parts_of(parts), name=message.name if name is None else row_format.restore(name))


def revised_parts(db: Database, agent_id: AgentId, seq: int, revision: int) -> str:
    """The parts of a message's revision, as the column stores them."""
    rows = db.rows(
        "SELECT parts FROM message_revisions WHERE agent_id = :agent_id AND seq = :seq AND revision = :revision",
        {"agent_id": agent_id, "seq": seq, "revision": revision},
    )
    text: str = rows[0][0]
    return text


def load_revision(db: Database, message: Message, settings_revision: int) -> Message | None:
    """The message as a request with this settings revision showed it; None if it was removed before."""
    if not message.revision:
        return message
    rows = db.rows(
        "SELECT revision, parts, name FROM message_revisions WHERE agent_id = :agent_id AND seq = :seq"
        " AND settings_revision <= :settings_revision ORDER BY revision DESC LIMIT 1",
        {"agent_id": message.agent_id, "seq": message.seq, "settings_revision": settings_revision},
    )
    if not rows:
        return replace(message, revision=0)
    revision, parts, name = rows[0]
    return None if parts is None else replace(_with_revision(message, parts, name), revision=revision)


def reset_pending(table: str, *, agent: str = ":agent_id") -> str:
    """SQL that is true for a row of `table` that a reset of the agent (SQL) hides, but has not updated yet."""
    return (
        f"EXISTS (SELECT 1 FROM resetting x WHERE x.agent_id = {agent}"
        f" AND x.conversation_seq = {table}.conversation_seq AND x.upto_seq >= {table}.seq)"
    )


def in_view_of(agent: str) -> str:
    """SQL that is true for a message in view, of an agent (an SQL expression)."""
    return (
        f"removed = 0 AND (NOT EXISTS (SELECT 1 FROM resetting WHERE agent_id = {agent})"
        f" OR NOT {reset_pending('messages', agent=agent)})"
    )


IN_VIEW = in_view_of(":agent_id")
"""True for a message in view of `:agent_id`. The first EXISTS reads `resetting`, nearly always empty, once."""


def rows_in_view(
    db: Database, org_id: OrgId, columns: str, starts: Mapping[ConversationKey, int], condition: str = "1 = 1"
) -> dict[ConversationKey, list[row_format.Row]]:
    """Conversation -> `columns` of its rows in view that fulfil a condition, in order. `starts`: conversation -> the
    number of its first row to read."""
    sql = (
        f"SELECT agent_id, conversation_seq, {columns} FROM messages{db.by_index('messages_by_conversation')}"
        f" WHERE {{keys}} AND {OWN_AGENT_OF.format('messages')} AND {in_view_of('messages.agent_id')} AND {condition}"
        " ORDER BY seq"
    )
    each = "agent_id = ? AND conversation_seq = ? AND seq >= ?"
    return rows_of_each(db, sql, each, [(*key, seq) for key, seq in starts.items()], org_id=org_id)


# The end is looked up in messages, not in runs: between two runs of a conversation an agent may have many of others. It
# is a scalar subquery without outer columns, so that the database does not scan all later messages.
BEFORE_NEXT_RUN = (
    "seq < COALESCE((SELECT n.seq FROM messages c CROSS JOIN messages n WHERE c.agent_id = :agent_id"
    " AND c.conversation_seq = :conversation AND c.seq > :own AND n.agent_id = c.agent_id AND n.seq = c.seq"
    " AND n.run_seq > :run_seq ORDER BY c.seq LIMIT 1), 9223372036854775807)"
)
"""The condition that a message precedes those of the run after `:run_seq`, whose own messages begin at `:own`."""


def in_view_sql(reset: bool) -> str:
    """SQL that is true for a message of `:agent_id` in view; with `reset`, also one that a reset took out of view."""
    return "removed IN (0, 2)" if reset else IN_VIEW


def conditions_of(where: MessageFilter, table: str = "") -> Conditions:
    """The conditions of a filter; `table` is a prefix of the columns, such as `m.`."""
    conditions = Conditions()
    conditions.equal(f"{table}conversation_seq", where.conversation_seq)
    conditions.among(f"{table}role", where.roles or None)
    conditions.add(f"{table}occurred_at >= ?", where.since and row_format.iso(where.since))
    conditions.add(f"{table}occurred_at <= ?", where.until and row_format.iso(where.until))
    conditions.between(f"{table}seq", None, where.before_seq)
    return conditions


def place_of(db: Database, org_id: OrgId, message_id: MessageId) -> tuple[AgentId, int]:
    """The agent and number of a message. Raises: NotFound.

    The ids of a run's inputs and answers contain the run's id (`core.ids.id_in_run`). The directory holds only the run,
    and the message is searched among the run's messages. All other ids are in the directory themselves.
    """
    place = find(db, org_id, "message", message_id)
    place = place or _place_in(db, find_run_of(db, org_id, message_id), message_id)
    if place is None:
        raise NotFound("message", message_id)
    return AgentId(place[0]), place[1]


def places_of(db: Database, org_id: OrgId, ids: Sequence[MessageId]) -> dict[MessageId, tuple[AgentId, int]]:
    """Id -> (agent, number) of these messages; an id that no message has is left out."""
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
    """(agent, number) of the message with this id among those of a run (agent, number); None: no run, or no message."""
    if run is None:
        return None
    params: dict[str, Any] = {"agent_id": run[0], "run_seq": run[1]}
    runs = db.rows(
        "SELECT conversation_seq, first_message_seq FROM runs WHERE agent_id = :agent_id AND seq = :run_seq", params
    )
    if not runs or runs[0][1] is None:  # its input is not a message yet
        return None
    params |= {"conversation": runs[0][0], "own": runs[0][1], "id": row_format.storable(id_)}
    # By the conversation's index: by the primary key the messages of all conversations would be read.
    rows = db.rows(
        "SELECT m.seq FROM messages c CROSS JOIN messages m WHERE c.agent_id = :agent_id"
        f" AND c.conversation_seq = :conversation AND c.seq >= :own AND c.{BEFORE_NEXT_RUN}"
        " AND m.agent_id = c.agent_id AND m.seq = c.seq AND m.id = :id",
        params,
    )
    return (run[0], rows[0][0]) if rows else None


class IdStarts(Table):
    """The ids of things of all kinds, looked up by their beginnings."""

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
