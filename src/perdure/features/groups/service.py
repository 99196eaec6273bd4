"""The groups of the store, and one group: agents that answer together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypedDict, Unpack, cast

from perdure.app import App
from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, BlockId, ConversationId, GroupId, MessageId, derived_id, is_id
from perdure.core.messages import Image, ImageLink, Message, Text
from perdure.core.runs import IfBusy
from perdure.core.text.reprs import short_repr
from perdure.engine.conversations.edit import EditedPart
from perdure.engine.conversations.reset import delete
from perdure.engine.records.run_request import NewMessage
from perdure.features.groups.companions import change_group, delete_group, enable_companion
from perdure.features.groups.log import load_messages
from perdure.features.groups.passes import with_turns_counter
from perdure.features.groups.replies import GroupReply
from perdure.features.groups.runner import GroupRunner
from perdure.features.groups.tables import GroupMessages, Groups
from perdure.features.groups.units import GroupChanges, GroupFields, GroupRequest, NewGroup, create_group, reset_group
from perdure.features.groups.values import SLEEPTIME_KINDS, GroupEvent, GroupFilter, GroupKind, GroupMessage, GroupTurn
from perdure.features.groups.values import Group as GroupInfo
from perdure.features.groups.work_tables import GroupTurns
from perdure.library.agents.agents import AllAgents
from perdure.library.messages.history import AsyncHistory
from perdure.library.messages.requests import fetch_images
from perdure.library.messages.sending import Picture, load_images
from perdure.library.parts.checks import LIMIT_MAX, Page, check_limit, check_number, check_page, check_text, outside
from perdure.library.parts.part import AsyncPart, reads
from perdure.storage.tx import Tx

NAMES_SHOWN = 10

Entry = tuple[GroupMessage, Message | None]
"""An entry of a transcript, and the agent's message that it stands for; None: it holds its own text, or none."""


class GroupSendOptions(TypedDict, total=False):
    """Options of a message to a group; see `AsyncGroupById.send`."""

    idempotency_key: str | None
    if_busy: IfBusy
    max_steps: int | None


class HasAgentId(Protocol):
    """An agent, as the library returns it."""

    @property
    def id(self) -> AgentId:
        """The agent's id."""


class AsyncGroups(AsyncPart):
    """All groups of the store."""

    async def create(
        self,
        kind: GroupKind,
        *,
        agents: Sequence[HasAgentId | str],
        manager: HasAgentId | str | None = None,
        **options: Unpack[GroupFields],
    ) -> AsyncGroup:
        """A new group of agents, which are given by objects, names or ids.

        Args:
            kind: "round_robin": each speaks in turn; "supervisor": all speak at once, then the manager answers;
                "dynamic": the manager chooses who speaks next.
            agents: who takes part, in the order in which they speak.
            manager: of a supervisor or dynamic group.
            options: `description`, `project_id`, `hidden`. `shared_block_ids`: blocks that all get. `max_turns`:
                how often participants may speak after one message; by default each once, or 10 in a dynamic group.
                `termination_token`: what ends a dynamic turn where an agent writes it; by default "DONE!".
                `max_tokens`, `max_cost_usd`: what one message may use; None: no limit.
        Raises: InvalidInput: nobody, somebody twice, a manager among the participants or where there is none, more than
            50 agents; NotFound.
        """
        members = await self._ids_of(agents)
        manager_id = None if manager is None else (await self._ids_of([manager]))[0]
        new = {"kind": kind, "agent_ids": members, "manager_agent_id": manager_id, **options}
        return await self.add(cast(NewGroup, new))

    async def add(self, new: NewGroup) -> AsyncGroup:
        """A new group. Raises: as `create`; TooMany; AlreadyExists: an agent has another block of the label of one."""
        ports = self._ports
        now = ports.clock.now()

        def create(tx: Tx) -> GroupInfo:
            """Create the group, and enable the companion if it is for one."""
            group = create_group(tx, new, ids=ports.ids, at=now)
            if group.kind in SLEEPTIME_KINDS and group.manager_agent_id is not None:
                enable_companion(tx, group.manager_agent_id, ids=ports.ids, author=outside(), at=now)
            return with_turns_counter(tx, group)

        return AsyncGroup(self._app, await ports.store.write(create))

    async def get(self, name_or_id: str) -> AsyncGroup:
        """The group of this id, or its beginning, or the newest of this description. Raises: NotFound, InvalidInput."""
        check_text("a group's id or description", name_or_id)

        found = await self._ports.store.read(lambda tx: with_turns_counter(tx, _resolve_group(tx, name_or_id.strip())))
        return AsyncGroup(self._app, found)

    def by_id(self, group_id: GroupId) -> AsyncGroupById:
        """The group of this id, which is not looked up."""
        return AsyncGroupById(self._app, group_id)

    async def list(
        self,
        *,
        kind: GroupKind | None = None,
        agent_id: AgentId | None = None,
        limit: int = 50,
        after: GroupId | None = None,
    ) -> list[AsyncGroup]:
        """A page of the groups, newest first; `after` is the last one of the page before.

        Args:
            agent_id: only groups that it takes part in, or manages.
        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no group `after`.
        """
        where = GroupFilter(kind=kind, agent_id=agent_id, hidden=False)
        groups = await self.page(where, Page(limit, ascending=False, after=after))
        return [AsyncGroup(self._app, group) for group in groups]

    @reads
    def page(self, tx: Tx, where: GroupFilter, page: Page) -> Sequence[GroupInfo]:
        """A page of groups. Raises: InvalidInput; NotFound: the page begins at no group."""
        check_page(page)
        return [with_turns_counter(tx, group) for group in tx.of(Groups).page(where=where, **page.arguments)]

    @reads
    def page_of_agent(self, tx: Tx, agent_id: AgentId, where: GroupFilter, page: Page) -> Sequence[GroupInfo]:
        """A page of the groups in which an agent takes part, or which it manages. Raises: NotFound; as `list`."""
        check_page(page)
        tx.agents.model(agent_id)
        groups = tx.of(Groups).page(where=replace(where, agent_id=agent_id), **page.arguments)
        return [with_turns_counter(tx, group) for group in groups]

    async def count(self, where: GroupFilter) -> int:
        """How many groups the filter lets through."""
        return await self._ports.store.read(lambda tx: tx.of(Groups).count(where))

    async def delete(self, group_id: GroupId) -> None:
        """Remove a group with its transcript; its agents stay, with what they said. Raises: NotFound."""
        await AsyncGroupById(self._app, group_id).delete()

    async def _ids_of(self, agents: Sequence[HasAgentId | str]) -> tuple[AgentId, ...]:
        """The ids of agents. Raises: NotFound."""
        resolve = AllAgents(self._app).resolve
        return tuple([(await resolve(agent)).id if isinstance(agent, str) else agent.id for agent in agents])


class AsyncGroupById(AsyncPart):
    """One group by its id, which is not looked up before it is used."""

    __repr__ = short_repr("id")

    def __init__(self, app: App, group_id: GroupId) -> None:
        super().__init__(app)
        self._group_id = group_id

    @property
    def id(self) -> GroupId:
        """The group's id."""
        return self._group_id

    @property
    def _turns(self) -> GroupRunner:
        return self._app.service(GroupRunner)

    async def send(
        self, text: str, *, images: Sequence[Picture] = (), **options: Unpack[GroupSendOptions]
    ) -> GroupReply:
        """Send a message to the group, and wait until its agents have said what they have to say.

        Args:
            images: pictures behind the text: files, bytes or addresses.
            options: `idempotency_key`: the same key again is the same message: nobody speaks twice, and the reply is
                returned. `if_busy`: whether to wait for the turn under way to end ("wait"), or to raise GroupBusy
                ("reject"). `max_steps`: the most model calls of each run.
        Raises: EmptyMessage, MessageTooLarge, InvalidInput, NotFound, GroupBusy, IdempotencyMismatch, StoreError. That
            an agent failed says the reply: the others go on.
        """
        return await self.reply(await self.submit(text, images=images, **options))

    async def stream(
        self, text: str, *, images: Sequence[Picture] = (), **options: Unpack[GroupSendOptions]
    ) -> AsyncIterator[GroupEvent]:
        """Send a message to the group, and yield who speaks, the events of the speakers' runs, and last the turn's end.

        Agents that speak at once come one after the other, in order. Leaving the loop early does not stop the turn;
        `cancel` does. Raises: as `send`.
        """
        async for event in self.follow(await self.submit(text, images=images, **options)):
            yield event

    async def submit(
        self, text: str, *, images: Sequence[Picture] = (), **options: Unpack[GroupSendOptions]
    ) -> GroupTurn:
        """Send a message without waiting. When this returns, it is durable and will be answered. Raises: as `send`."""
        check_text("text", text)
        message = NewMessage((Text(text), *await load_images(images)))
        return await self.send_messages([message], **options)

    async def send_messages(self, messages: Sequence[NewMessage], **options: Unpack[GroupSendOptions]) -> GroupTurn:
        """Store a turn that answers these messages, and return it: it is durable then. `max_steps` is of each run.

        Raises: EmptyMessage, MessageTooLarge, InvalidInput, TooMany, ToolError, NotFound, GroupBusy,
            IdempotencyMismatch, StoreError.
        """
        messages, _ = await fetch_images(self._app, messages, None)
        ids = self._ports.ids
        drafts = [message.draft(MessageId(ids.new("message"))) for message in messages]
        return await self._turns.send(GroupRequest(group_id=self.id, drafts=drafts, **options))

    def follow(self, turn: GroupTurn) -> AsyncIterator[GroupEvent]:
        """All that happens in a turn until it has ended. Raises: NotFound, StoreError."""
        return self._turns.follow(turn)

    async def reply(self, turn: GroupTurn) -> GroupReply:
        """The outcome of a turn, once it has ended. Raises: NotFound, StoreError."""
        return GroupReply.of([event async for event in self._turns.follow(turn)])

    @reads
    def messages(
        self, tx: Tx, *, limit: int = 100, after_seq: int | None = -1, newest_first: bool = False
    ) -> Sequence[GroupMessage]:
        """A page of the transcript, oldest first, with the texts of what was said; `after_seq` is the number of the
        last entry on the page before. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        check_number("after_seq", after_seq)
        tx.of(Groups).get(self.id)
        found = tx.of(GroupMessages).list(self.id, above=after_seq, newest_first=newest_first, limit=limit)
        return [
            entry if message is None else replace(entry, parts=message.parts)
            for entry, message in _with_messages(tx, found)
        ]

    @reads
    def entries(self, tx: Tx, page: Page) -> Sequence[Entry]:
        """A page of the transcript; its cursors are ids of entries (`entry_id`). Raises: InvalidInput, NotFound."""
        check_page(page)
        tx.of(Groups).get(self.id)
        query = partial(tx.of(GroupMessages).list, self.id)
        return _with_messages(tx, page.load(query, lambda cursor: _find_entry(tx, self.id, cursor).seq))

    async def edit_message(
        self,
        message_id: MessageId,
        part: EditedPart | None,
        parts: Sequence[Text | Image | ImageLink],
        *,
        author: Author | None = None,
    ) -> Entry:
        """Change an agent's message in the transcript and its history; who was shown it keeps the old.

        Raises: NotFound, ConversationBusy, EmptyMessage, MessageTooLarge; InvalidInput: it is no agent's.
        """
        entry = await self._ports.store.read(lambda tx: _find_entry(tx, self.id, message_id))
        if entry.sender_id is None or entry.message_id is None:
            raise InvalidInput(
                f"{message_id} is not an agent's: what else stands in a transcript can't change, because the agents"
                " were shown it. Reset the group, or send another message"
            )
        return entry, await AsyncHistory(self._app, entry.sender_id).edit_message(
            entry.message_id, part, parts, author=author or outside()
        )

    @reads
    def conversation_of(self, tx: Tx, agent_id: AgentId) -> ConversationId | None:
        """The conversation in which an agent speaks in the group; None: there is none. Raises: NotFound: the group."""
        tx.of(Groups).get(self.id)
        numbers = {agent: seq for agent, _, seq in tx.of(Groups).members(self.id)}
        seq = numbers.get(agent_id)
        return None if seq is None else tx.conversations.get_by_seq(agent_id, seq).id

    @reads
    def turn(self, tx: Tx) -> GroupTurn | None:
        """The oldest turn that has not ended; None: nobody is speaking. Raises: NotFound."""
        return tx.of(GroupTurns).find_active(tx.of(Groups).get(self.id).id)

    async def cancel(self, turn_seq: int | None = None) -> Sequence[GroupTurn]:
        """End a turn by its number, or all that have not ended, with the runs of their speakers; what was said stays.

        Raises: NotFound.
        """
        check_number("turn_seq", turn_seq)

        def read(tx: Tx) -> Sequence[int]:
            """Return the numbers of the turns to cancel."""
            tx.of(Groups).get(self.id)
            if turn_seq is not None:
                return [tx.of(GroupTurns).get(self.id, turn_seq).seq]
            return [turn.seq for turn in tx.of(GroupTurns).list(self.id, limit=LIMIT_MAX) if not turn.ended]

        return [await self._turns.cancel(self.id, seq) for seq in sorted(await self._ports.store.read(read))]

    async def reset(self, *, author: Author | None = None) -> None:
        """Empty the transcript, and what its agents saw and said in this group; their other conversations stay. Raises:
        NotFound; GroupBusy: a turn has not ended."""
        await reset_group(self.id, self._ports, author=author or outside())

    async def update(self, **changes: Unpack[GroupChanges]) -> AsyncGroup:
        """Change the group and return it; this object keeps its old values. A turn under way goes by the old ones.

        Args:
            changes: `agent_ids` and `shared_block_ids`, replaced as a whole, `manager_agent_id`, `description`,
                `max_turns`, `termination_token`, `max_tokens`, `max_cost_usd`, `project_id`, `hidden`. A missing field
                stays.
        Raises: NotFound; InvalidInput: a value that can't be used, no such field.
        """
        return await self._change(lambda group: changes)

    async def _change(self, changes_of: Callable[[GroupInfo], GroupChanges]) -> AsyncGroup:
        """Change the group, read in the same transaction, by what `changes_of` returns. Raises: as `update`."""
        ports = self._ports
        now = ports.clock.now()

        def write(tx: Tx) -> GroupInfo:
            tx.of(Groups).lock(self.id)
            changes = changes_of(tx.of(Groups).get(self.id))
            return with_turns_counter(tx, change_group(tx, self.id, changes, ids=ports.ids, author=outside(), at=now))

        return AsyncGroup(self._app, await ports.store.write(write))

    async def attach_block(self, block_id: BlockId) -> AsyncGroup:
        """Share a block with all agents of the group. One that is shared already stays. Raises: NotFound, TooMany;
        AlreadyExists: an agent has another block of its label."""
        check_text("block_id", block_id)
        return await self._change(
            lambda group: {"shared_block_ids": [*dict.fromkeys((*group.shared_block_ids, block_id))]}
        )

    async def detach_block(self, block_id: BlockId) -> AsyncGroup:
        """Stop sharing a block in the group; agents that have it only through the group lose it. Raises: NotFound, also
        if the group does not share it."""
        check_text("block_id", block_id)

        def without(group: GroupInfo) -> GroupChanges:
            """Raises: NotFound."""
            if block_id not in group.shared_block_ids:
                raise NotFound("block", block_id, hint=f"{group.id} does not share it")
            return {"shared_block_ids": [one for one in group.shared_block_ids if one != block_id]}

        return await self._change(without)

    async def delete(self) -> None:
        """Remove the group with its transcript; see `AsyncGroups.delete`."""
        check_text("group_id", self.id)
        now = self._ports.clock.now()
        await delete(self._ports, lambda tx: delete_group(tx, self.id, at=now))


class AsyncGroup(AsyncGroupById):
    """One group. `info` has its values at look-up time; its transcript is read at each call."""

    __repr__ = short_repr("id", "kind", "info.agent_ids")

    def __init__(self, app: App, group: GroupInfo) -> None:
        super().__init__(app, group.id)
        self._info = group

    @property
    def info(self) -> GroupInfo:
        """The group's values when it was looked up: its agents, its manager, its limits."""
        return self._info

    @property
    def kind(self) -> GroupKind:
        """The rule by which its agents take turns."""
        return self._info.kind


def entry_id(entry: GroupMessage) -> MessageId:
    """Return the id of a transcript entry: that of the message that it refers to, or its own."""
    return entry.message_id or MessageId(derived_id("message", entry.group_id, str(entry.seq)))


def is_deleted(entry: GroupMessage, message: Message | None) -> bool:
    """Whether the entry stands for a message of an agent that was deleted since, or whose agent or conversation was."""
    return message is None and entry.sender_id is not None and entry.message_id is not None


def _find_entry(tx: Tx, group_id: GroupId, message_id: str) -> GroupMessage:
    """The entry with this id. Raises: NotFound."""
    found = tx.of(GroupMessages).find(group_id, MessageId(message_id))
    others = () if found else tx.of(GroupMessages).list_without_message(group_id)
    found = found or next((entry for entry in others if entry_id(entry) == message_id), None)
    if found is None:
        raise NotFound("message", message_id)
    return found


def _with_messages(tx: Tx, entries: Sequence[GroupMessage]) -> Sequence[Entry]:
    """The entries, each with the agent's message that it refers to; None: it refers to none, or that was deleted."""
    messages = load_messages(tx, entries)
    return [(entry, messages.get(entry.message_id) if entry.message_id else None) for entry in entries]


def _resolve_group(tx: Tx, name: str) -> GroupInfo:
    """Find a group by its id, the only beginning of one, or its description. Raises: NotFound, InvalidInput."""
    if is_id("group", name):
        return tx.of(Groups).get(GroupId(name))
    groups = tx.of(Groups).page(where=GroupFilter(), limit=LIMIT_MAX)
    found = [group for group in groups if name and group.id.startswith(name) and name.startswith("group-")]
    found = found or [group for group in groups if group.description == name][:1]
    if len(found) > 1:
        ids = ", ".join(group.id for group in found[:NAMES_SHOWN])
        raise InvalidInput(f"{name!r} is the beginning of several ids: {ids}; give more of it")
    if not found:
        names = ", ".join(repr(group.description or group.id) for group in groups[:NAMES_SHOWN])
        raise NotFound("group", name, hint=f"there are {names}" if names else "there is none yet")
    return found[0]
