"""`tx.group_messages`: the transcripts of groups. A speech is a reference to the message of its agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perdure.core.groups.group import GroupMessage
from perdure.core.ids import AgentId, GroupId, MessageId
from perdure.core.messages import parts_from_json, parts_to_json
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import FLAG, TEXT, TIME, Codec, RowFormat, insert_into, restore, storable
from perdure.storage.tables.groups.groups import OWN_GROUP
from perdure.storage.tables.table import Table, first

_PARTS = Codec(lambda parts: storable(parts_to_json(parts)), lambda text: parts_from_json(restore(text)), null=())
_MESSAGE = RowFormat(
    GroupMessage,
    "group_id, seq, turn_seq, place, kind, sender_id, sender_name, run_id, message_id, message_seq, parts, chosen_id,"
    " ends_turn, seen_seq, created_at",
    {TEXT: "sender_name", FLAG: "ends_turn", TIME: "created_at", _PARTS: "parts"},
)
_INSERT = insert_into("group_messages", _MESSAGE.columns)
_SELECT = f"SELECT {_MESSAGE.columns} FROM group_messages"
_SHOWN = "seq >= (SELECT begins_at FROM groups WHERE id = :group_id AND org_id = :org_id)"
"""The condition of entries since the last reset; without the group, none fulfils it."""


class GroupMessages(Table):
    def append(self, group_id: GroupId, messages: Sequence[GroupMessage]) -> Sequence[GroupMessage]:
        """Append entries, and return them with their numbers. Raises: NotFound: the group."""
        rows = self._rows(
            "UPDATE groups SET message_seq = message_seq + :rows WHERE id = :id AND org_id = :org_id"
            " RETURNING message_seq - :rows",
            id=storable(group_id),
            rows=len(messages),
        )
        begin = int(first(rows, "group", group_id)[0])
        added = [replace(one, group_id=group_id, seq=begin + place) for place, one in enumerate(messages)]
        for message in added:
            self._run(_INSERT, **_MESSAGE.params(message))
        return added

    def list(
        self,
        group_id: GroupId,
        *,
        after_seq: int | None = None,
        before_seq: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[GroupMessage]:
        """Entries since the last reset, between two numbers, both excluded."""
        where = Conditions("group_id = :group_id", _SHOWN, group_id=storable(group_id))
        where.between("seq", after_seq, before_seq)
        order = "DESC" if newest_first else "ASC"
        sql = f"{_SELECT} WHERE {where} ORDER BY seq {order} LIMIT :limit"
        return [_MESSAGE.read(row) for row in self._rows(sql, limit=limit, **where.params)]

    def find(self, group_id: GroupId, message_id: MessageId) -> GroupMessage | None:
        """The entry that stands for this message."""
        sql = f"{_SELECT} WHERE group_id = :group_id AND message_id = :message_id AND {OWN_GROUP}"
        rows = self._rows(sql, group_id=storable(group_id), message_id=storable(message_id))
        return _MESSAGE.read(rows[0]) if rows else None

    def list_without_message(self, group_id: GroupId) -> Sequence[GroupMessage]:
        """The entries that stand for no message, such as of an agent that failed."""
        sql = f"{_SELECT} WHERE group_id = :group_id AND message_id IS NULL AND {OWN_GROUP} ORDER BY seq"
        return [_MESSAGE.read(row) for row in self._rows(sql, group_id=storable(group_id))]

    def list_of_turn(self, group_id: GroupId, turn_seq: int) -> Sequence[GroupMessage]:
        """The entries of one turn, in order."""
        sql = f"{_SELECT} WHERE group_id = :group_id AND turn_seq = :turn_seq AND {OWN_GROUP} ORDER BY seq"
        return [_MESSAGE.read(row) for row in self._rows(sql, group_id=storable(group_id), turn_seq=turn_seq)]

    def find_seen(self, group_id: GroupId, agent_id: AgentId) -> int | None:
        """The last entry since the last reset that the agent was shown before it spoke; None: it has not spoken."""
        rows = self._rows(
            "SELECT MAX(seen_seq) FROM group_messages"
            f" WHERE group_id = :group_id AND sender_id = :agent_id AND {_SHOWN}",
            group_id=storable(group_id),
            agent_id=storable(agent_id),
        )
        return None if rows[0][0] is None else int(rows[0][0])
