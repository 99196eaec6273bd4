"""Groups of agents, who belongs to them, and the blocks that their agents have because of them; and their transcripts,
in which a speech is a reference to the message of its agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from perdure.core.ids import AgentId, BlockId, GroupId, MessageId
from perdure.core.messages import parts_from_json, parts_to_json
from perdure.features.groups.feature import ATTACHMENTS
from perdure.features.groups.values import SLEEPTIME_KINDS, Group, GroupFilter, GroupMember, GroupMessage
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions, NumberWindow
from perdure.storage.tables.deleted import delete_shared
from perdure.storage.tables.table import OwnId, PagedTable, Table, first, next_number, own_agent, own_row

_SETTINGS = (
    "description, manager_agent_id, termination_token, max_turns, max_tokens, max_cost_usd, frequency,"
    " max_message_buffer_length, min_message_buffer_length, last_message_id, project_id, hidden, updated_at"
)
_GROUP = row_format.RowFormat(
    Group, {row_format.TEXT: "last_message_id"}, columns=f"id, org_id, number, kind, created_at, {_SETTINGS}"
)
MANAGER = -1
"""The position of a manager among the agents of its group."""

OWN_GROUP = "EXISTS (SELECT 1 FROM groups WHERE id = :group_id AND org_id = :org_id)"


class Groups(PagedTable[GroupFilter, Group]):
    """The groups, their agents, and the blocks that agents have because of them."""

    _kind, _source, _format = "group", "groups", _GROUP

    def add(self, group: Group) -> Group:
        """Add a group with its agents, not its blocks, and return it with its number. Raises: NotFound: an agent."""
        group = replace(group, org_id=self._org_id, number=next_number(self._db), shared_block_ids=())
        self._run(row_format.insert_into("groups", _GROUP.columns), **_GROUP.params(group))
        self._put_agents(OwnId(group.id), group)
        return group

    def get(self, group_id: str) -> Group:
        """The group of this id, with its participants and shared blocks. Raises: NotFound."""
        groups = self._read("id = :id", id=row_format.storable(group_id))
        return self._whole([first(groups, "group", group_id)])[0]

    def lock(self, group_id: GroupId) -> None:
        """Lock the group until the end of this transaction, in a database with concurrent writers. Raises: NotFound."""
        own_row(self._db, self._org_id, "group", "groups", group_id, lock=True)

    def _where(self, where: GroupFilter) -> Conditions:
        conditions = Conditions("org_id = :org_id")
        conditions.equal("kind", where.kind)
        conditions.among("kind", None if where.kinds is None else sorted(where.kinds))
        conditions.equal("manager_agent_id", where.manager_agent_id)
        conditions.add("id IN (SELECT group_id FROM group_agents WHERE agent_id = ?)", where.agent_id)
        conditions.equal("project_id", where.project_id)
        conditions.equal("hidden", where.hidden)
        return conditions

    def list_managed(self, agent_ids: Sequence[AgentId]) -> Mapping[AgentId, Group]:
        """Map agents to the group that each manages, if it does: one with a companion, else the newest."""
        where = Conditions("org_id = :org_id")
        where.among("manager_agent_id", agent_ids)
        by_manager = self._db.by_index("groups_by_manager")
        sql = f"SELECT {_GROUP.columns} FROM groups{by_manager} WHERE {where} ORDER BY number"
        groups = [_GROUP.read(row) for row in self._rows(sql, **where.params)] if agent_ids else []
        groups.sort(key=lambda group: group.kind in SLEEPTIME_KINDS)
        managed = {group.manager_agent_id: group for group in groups}
        return {one.manager_agent_id: one for one in self._whole([*managed.values()]) if one.manager_agent_id}

    def put(self, group: Group) -> Group:
        """Update a group and its agents; those that stay keep their conversations. Its kind and blocks stay.

        Raises: NotFound: the group, or an agent.
        """
        self._update(group, _SETTINGS)
        self._put_agents(OwnId(group.id), group)
        return self.get(group.id)

    def delete(self, group_id: GroupId) -> None:
        """Delete a group with its transcript; detach blocks that its agents have because of it. Raises: NotFound."""
        delete_shared(self._db, self._org_id, "groups", OwnId(self.get(group_id).id))

    def reset(self, group_id: GroupId) -> None:
        """Empty the transcript: earlier entries are listed no more. Raises: NotFound."""
        sql = "UPDATE groups SET begins_at = message_seq WHERE id = :id AND org_id = :org_id"
        self._change_one("group", group_id, sql, id=group_id)

    def members(self, group_id: GroupId) -> Sequence[tuple[AgentId, str, int | None]]:
        """(agent, name, number of its conversation in this group): the manager first, if there is one, then the
        participants in order. None: it has no conversation yet."""
        rows = self._rows(
            "SELECT a.id, a.name, x.conversation_seq FROM groups g JOIN group_agents x ON x.group_id = g.id"
            " JOIN agents a ON a.id = x.agent_id AND a.org_id = g.org_id"
            " WHERE g.id = :group_id AND g.org_id = :org_id ORDER BY x.position",
            group_id=row_format.storable(group_id),
        )
        return [(AgentId(row[0]), row_format.restore(row[1]), row[2]) for row in rows]

    def put_conversation(self, group_id: GroupId, member: GroupMember) -> None:
        """Store in which conversation an agent speaks in this group."""
        key = {"group_id": row_format.storable(group_id), "agent_id": row_format.storable(member.agent_id)}
        self._set("group_agents", key, OWN_GROUP, conversation_seq=member.conversation_seq)

    def share_block(self, group_id: GroupId, agent_id: AgentId, block_id: BlockId, *, attached: bool) -> None:
        """Store that an agent of the group has a block because of it; `attached`: it would not have it otherwise.

        Raises: NotFound: the group, agent or block.
        """
        self._run(
            "INSERT INTO group_blocks (group_id, agent_id, block_id, position, attached)"
            " SELECT :group_id, :agent_id, :block_id, COALESCE(MAX(position), 0) + 1, :attached"
            " FROM group_blocks WHERE group_id = :group_id ON CONFLICT (group_id, agent_id, block_id) DO NOTHING",
            group_id=OwnId(self.get(group_id).id),
            agent_id=own_agent(self._db, self._org_id, agent_id),
            block_id=own_row(self._db, self._org_id, "block", "blocks", block_id),
            attached=int(attached),
        )

    def unshare_block(self, group_id: GroupId, agent_id: AgentId, block_id: BlockId) -> None:
        """Take a block of the group from an agent, unless the agent has it on its own or because of another group."""
        pair = "agent_id = :agent_id AND block_id = :block_id"
        params = {"id": group_id, "group_id": row_format.storable(group_id), "agent_id": agent_id, "block_id": block_id}
        self._run(f"DELETE FROM agent_blocks WHERE {pair} AND {OWN_GROUP} AND {ATTACHMENTS}", **params)
        self._run(f"DELETE FROM group_blocks WHERE group_id = :group_id AND {pair} AND {OWN_GROUP}", **params)

    def has_attached(self, agent_id: AgentId, block_id: BlockId) -> bool:
        """Whether the agent has this block because of a group only."""
        sql = (
            "SELECT 1 FROM group_blocks x JOIN groups g ON g.id = x.group_id AND g.org_id = :org_id"
            " JOIN blocks b ON b.id = x.block_id AND b.org_id = :org_id"
            " WHERE x.agent_id = :agent_id AND x.block_id = :block_id AND x.attached = 1"
        )
        return bool(self._rows(sql, agent_id=row_format.storable(agent_id), block_id=row_format.storable(block_id)))

    def _put_agents(self, group_id: OwnId, group: Group) -> None:
        """Store who belongs to a group: its participants in order, and its manager. Raises: NotFound: an agent."""
        wanted = {agent_id: position for position, agent_id in enumerate(group.agent_ids)}
        if group.manager_agent_id is not None:
            wanted[group.manager_agent_id] = MANAGER
        rows = self._rows("SELECT agent_id FROM group_agents WHERE group_id = :id", id=group_id)
        present = {AgentId(row[0]) for row in rows}
        for agent_id in present - wanted.keys():
            self._run(
                "DELETE FROM group_agents WHERE group_id = :id AND agent_id = :agent_id", id=group_id, agent_id=agent_id
            )
        for agent_id, position in wanted.items():
            params = {"id": group_id, "position": position}
            if agent_id in present:
                sql = "UPDATE group_agents SET position = :position WHERE group_id = :id AND agent_id = :agent_id"
                self._run(sql, agent_id=agent_id, **params)
                continue
            self._run(
                "INSERT INTO group_agents (group_id, agent_id, position) VALUES (:id, :agent_id, :position)",
                agent_id=own_agent(self._db, self._org_id, agent_id),
                **params,
            )

    def _whole(self, groups: Sequence[Group]) -> Sequence[Group]:
        """These groups with their participants and shared blocks."""
        ids = [group.id for group in groups]
        members = (
            "SELECT x.group_id, x.agent_id FROM group_agents x JOIN agents a ON a.id = x.agent_id"
            f" WHERE {{keys}} AND a.org_id = :org_id AND x.position > {MANAGER} ORDER BY x.position"
        )
        shared = (
            "SELECT x.group_id, x.block_id FROM group_blocks x JOIN blocks b ON b.id = x.block_id"
            " WHERE {keys} AND b.org_id = :org_id ORDER BY x.position"
        )
        agents, blocks = (self._rows_of_each(sql, "x.group_id", ids) for sql in (members, shared))
        return [
            replace(
                group,
                agent_ids=tuple(row[0] for row in agents[group.id]),
                shared_block_ids=tuple(dict.fromkeys(row[0] for row in blocks[group.id])),
            )
            for group in groups
        ]


_PARTS = row_format.Codec(
    lambda parts: row_format.storable(parts_to_json(parts)),
    lambda text: parts_from_json(row_format.restore(text)),
    null=(),
)
_MESSAGE = row_format.RowFormat(GroupMessage, {_PARTS: "parts"})
_INSERT = row_format.insert_into("group_messages", _MESSAGE.columns)
_SELECT = f"SELECT {_MESSAGE.columns} FROM group_messages"
_SHOWN = "seq >= (SELECT begins_at FROM groups WHERE id = :group_id AND org_id = :org_id)"
"""The condition of entries since the last reset; without the group, none fulfils it."""


class GroupMessages(Table):
    """The transcripts of groups, in entries."""

    def append(self, group_id: GroupId, messages: Sequence[GroupMessage]) -> Sequence[GroupMessage]:
        """Append entries, and return them with their numbers. Raises: NotFound: the group."""
        begin = self._take("groups", "message_seq", group_id, "group", len(messages))
        added = [replace(one, group_id=group_id, seq=begin + place) for place, one in enumerate(messages)]
        for message in added:
            self._run(_INSERT, **_MESSAGE.params(message))
        return added

    def list(self, group_id: GroupId, **window: Unpack[NumberWindow]) -> Sequence[GroupMessage]:
        """Entries since the last reset with numbers between `above` and `below`, both excluded."""
        where = Conditions("group_id = :group_id", _SHOWN, group_id=row_format.storable(group_id))
        order = where.window("seq", window)
        return self._all(_MESSAGE, f"{_SELECT} WHERE {where} {order}", **where.params)

    def find(self, group_id: GroupId, message_id: MessageId) -> GroupMessage | None:
        """Return the entry that refers to this message."""
        sql = f"{_SELECT} WHERE group_id = :group_id AND message_id = :message_id AND {OWN_GROUP}"
        return self._one(
            _MESSAGE, sql, group_id=row_format.storable(group_id), message_id=row_format.storable(message_id)
        )

    def list_without_message(self, group_id: GroupId) -> Sequence[GroupMessage]:
        """The entries that stand for no message, such as of an agent that failed."""
        sql = f"{_SELECT} WHERE group_id = :group_id AND message_id IS NULL AND {OWN_GROUP} ORDER BY seq"
        return self._all(_MESSAGE, sql, group_id=row_format.storable(group_id))

    def list_of_turn(self, group_id: GroupId, turn_seq: int) -> Sequence[GroupMessage]:
        """The entries of one turn, in order."""
        sql = f"{_SELECT} WHERE group_id = :group_id AND turn_seq = :turn_seq AND {OWN_GROUP} ORDER BY seq"
        return self._all(_MESSAGE, sql, group_id=row_format.storable(group_id), turn_seq=turn_seq)

    def find_seen(self, group_id: GroupId, agent_id: AgentId) -> int | None:
        """The last entry since the last reset that the agent was shown before it spoke; None: it has not spoken."""
        sql = (
            f"SELECT MAX(seen_seq) FROM group_messages WHERE group_id = :group_id AND sender_id = :sender AND {_SHOWN}"
        )
        found: int | None = self._value(
            sql, group_id=row_format.storable(group_id), sender=row_format.storable(agent_id)
        )
        return found
