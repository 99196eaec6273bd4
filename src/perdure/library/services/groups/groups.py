"""Groups: made, found, changed and removed; what is said to them, what they say, and their transcripts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from perdure.app import App
from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.events import RunEnded, StoredEvent
from perdure.core.groups.group import (
    SLEEPTIME_KINDS,
    Group,
    GroupEvent,
    GroupFilter,
    GroupMessage,
    GroupStopReason,
    GroupTurn,
    GroupTurnEnded,
    Speaker,
    SpeakerEvent,
    SpeakerFailed,
    SpeakerStarted,
)
from perdure.core.ids import AgentId, ConversationId, GroupId, MessageId, derived_id, is_id
from perdure.core.messages import Image, ImageLink, Message, Text
from perdure.core.runs import Failure, IfBusy, Usage
from perdure.core.text.reprs import short_repr
from perdure.domain.companions.passes import with_turns_counter
from perdure.domain.companions.units import change_group, delete_group, enable_companion
from perdure.domain.groups.units import GroupChanges, NewGroup, create_group
from perdure.engine.conversations.edit import EditedPart
from perdure.engine.conversations.reset import delete
from perdure.engine.groups.units import reset_group
from perdure.engine.run.run_request import NewMessage
from perdure.library.checks import LIMIT_MAX, Page, check_limit, check_number, check_page, check_text, outside
from perdure.library.reply import Reply
from perdure.library.services.messages import MessageService
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerReply:
    """What one agent of the group says in one run. `failure` is the entry of the transcript that says why it could not;
    `reply` is None where it had not even begun."""

    __repr__ = short_repr("speaker", "reply", "problem")

    speaker: Speaker
    reply: Reply | None = None
    failure: GroupMessage | None = None

    @property
    def problem(self) -> str | None:
        """Why it could not speak, or not to the end."""
        return None if self.failure is None else self.failure.text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReply:
    """One turn of a group: what each of its agents says to a message, in order, a manager's choices included."""

    __repr__ = short_repr("text", "stop_reason", "failure")

    turn: GroupTurn
    replies: tuple[SpeakerReply, ...]

    @property
    def text(self) -> str:
        """What was said, each speech behind its speaker's name: `Anna: ...`."""
        return "\n\n".join(f"{one.speaker.name}: {one.reply.text}" for one in self._speeches if one.reply)

    @property
    def answer(self) -> str:
        """The last speech: a supervisor's answer, or what ended the talk."""
        return next((one.reply.text for one in reversed(self._speeches) if one.reply), "")

    @property
    def stop_reason(self) -> GroupStopReason:
        """Why the turn ended."""
        return self.turn.stop_reason or "error"

    @property
    def failure(self) -> Failure | None:
        """Why it failed, if it did."""
        return self.turn.failure

    @property
    def usage(self) -> Usage:
        """The tokens of all its runs."""
        return self.turn.usage

    @property
    def _speeches(self) -> list[SpeakerReply]:
        """The replies with a text, without the choices of a manager."""
        return [one for one in self.replies if one.speaker.task != "choose" and one.reply and one.reply.text]

    @classmethod
    def of(cls, events: list[GroupEvent]) -> GroupReply:
        """The reply that the events of a whole turn tell; the last one is its end."""
        end = events[-1]
        assert isinstance(end, GroupTurnEnded)
        stored: dict[int, list[StoredEvent]] = {}
        failures: dict[int, GroupMessage] = {}
        speakers: dict[int, Speaker] = {}
        for event in events:
            match event:
                case SpeakerStarted(speaker=speaker) | SpeakerEvent(speaker=speaker) | SpeakerFailed(speaker=speaker):
                    speakers[speaker.place] = speaker
                case GroupTurnEnded():
                    continue
            if isinstance(event, SpeakerEvent) and isinstance(event.event, StoredEvent):
                stored.setdefault(speaker.place, []).append(event.event)
            elif isinstance(event, SpeakerFailed):
                failures[speaker.place] = event.entry
        replies = {
            place: Reply.of(found) for place, found in stored.items() if isinstance(found[-1].event, RunEnded)
        }  # an agent that was deleted while it spoke has no end
        return cls(
            turn=end.turn,
            replies=tuple(
                SpeakerReply(speaker=speaker, reply=replies.get(place), failure=failures.get(place))
                for place, speaker in sorted(speakers.items())
            ),
        )


NAMES_SHOWN = 10

Entry = tuple[GroupMessage, Message | None]
"""An entry of a transcript, and the agent's message that it stands for; None: it holds its own text, or none."""


class GroupService:
    """The operations on groups."""

    def __init__(self, app: App, messages: MessageService) -> None:
        self._ports, self._turns, self._messages = app.ports, app.groups, messages

    async def create(self, new: NewGroup) -> Group:
        """A new group. Raises: InvalidInput, TooMany; NotFound: an agent or block; AlreadyExists: an agent has another
        block of the label of one."""
        ports = self._ports
        now = ports.clock.now()

        def create(tx: Tx) -> Group:
            group = create_group(tx, new, ids=ports.ids, at=now)
            if group.kind in SLEEPTIME_KINDS and group.manager_agent_id is not None:
                enable_companion(tx, group.manager_agent_id, ids=ports.ids, author=outside(), at=now, kind=group.kind)
            return with_turns_counter(tx, group)

        return await ports.store.write(create)

    async def get(self, group_id: GroupId) -> Group:
        """Raises: NotFound."""
        return await self._ports.store.read(lambda tx: with_turns_counter(tx, tx.groups.get(group_id)))

    async def resolve(self, name: str) -> Group:
        """The group of this id or beginning of one, or the newest of this description. Raises: NotFound, naming what
        there is; InvalidInput: several ids begin so."""
        check_text("a group's id or description", name)
        return await self._ports.store.read(_resolve_group, name.strip())

    async def list(self, where: GroupFilter, page: Page) -> Sequence[Group]:
        """A page of groups. Raises: InvalidInput; NotFound: the page begins at no group."""
        check_page(page)
        return await self._ports.store.read(
            lambda tx: [with_turns_counter(tx, group) for group in tx.groups.page(where=where, **page.arguments)]
        )

    async def list_of_agent(self, agent_id: AgentId, where: GroupFilter, page: Page) -> Sequence[Group]:
        """A page of the groups in which an agent takes part, or which it manages. Raises: as `list`; NotFound: the
        agent."""
        check_page(page)

        def read(tx: Tx) -> Sequence[Group]:
            tx.agents.model(agent_id)
            groups = tx.groups.page(where=replace(where, agent_id=agent_id), **page.arguments)
            return [with_turns_counter(tx, group) for group in groups]

        return await self._ports.store.read(read)

    async def count(self, where: GroupFilter) -> int:
        """How many groups the filter lets through."""
        return await self._ports.store.read(lambda tx: tx.groups.count(where))

    async def update(self, group_id: GroupId, changes: GroupChanges) -> Group:
        """The group as changed. Raises: as `create`; NotFound."""
        ports = self._ports
        now = ports.clock.now()
        return await ports.store.write(
            lambda tx: with_turns_counter(
                tx, change_group(tx, group_id, changes, ids=ports.ids, author=outside(), at=now)
            )
        )

    async def delete(self, group_id: GroupId) -> None:
        """Remove a group with its transcript; its agents stay, with what they said. Raises: NotFound."""
        check_text("group_id", group_id)
        now = self._ports.clock.now()
        await delete(self._ports, lambda tx: delete_group(tx, group_id, at=now))

    async def submit(
        self,
        group_id: GroupId,
        messages: Sequence[NewMessage],
        *,
        idempotency_key: str | None = None,
        if_busy: IfBusy = "wait",
        max_steps: int | None = None,
    ) -> GroupTurn:
        """The turn of the group that answers these messages; from here on it is durable. `max_steps` is of each run.

        Raises: EmptyMessage, MessageTooLarge, InvalidInput, TooMany, ToolError, NotFound, GroupBusy,
            IdempotencyMismatch, StoreError.
        """
        messages, _ = await self._messages.fetch_images(messages, None)
        ids = self._ports.ids
        drafts = [message.draft(MessageId(ids.new("message"))) for message in messages]
        return await self._turns.send(
            group_id, drafts, idempotency_key=idempotency_key, if_busy=if_busy, max_steps=max_steps
        )

    def follow(self, turn: GroupTurn) -> AsyncIterator[GroupEvent]:
        """All that happens in a turn until it has ended. Raises: NotFound, StoreError."""
        return self._turns.follow(turn)

    async def reply(self, turn: GroupTurn) -> GroupReply:
        """The outcome of a turn, once it has ended. Raises: NotFound, StoreError."""
        return GroupReply.of([event async for event in self._turns.follow(turn)])

    async def cancel(self, group_id: GroupId, seq: int | None = None) -> Sequence[GroupTurn]:
        """End the turn of this number, or all that have not ended; return them as they then stand. Raises: NotFound."""
        check_number("turn_seq", seq)

        def read(tx: Tx) -> Sequence[int]:
            tx.groups.get(group_id)
            if seq is not None:
                return [tx.group_turns.get(group_id, seq).seq]
            return [turn.seq for turn in tx.group_turns.list(group_id, limit=LIMIT_MAX) if not turn.ended]

        return [await self._turns.cancel(group_id, one) for one in sorted(await self._ports.store.read(read))]

    async def reset(self, group_id: GroupId, *, author: Author | None = None) -> None:
        """Have the transcript begin anew, and with it what the agents saw and said in this group. Raises: NotFound,
        StoreError; GroupBusy, ConversationBusy: a turn, or the run of an agent, has not ended."""
        await reset_group(group_id, self._ports, author=author or outside())

    async def find_conversation(self, group_id: GroupId, agent_id: AgentId) -> ConversationId | None:
        """The conversation in which an agent speaks in a group; None: it is not of the group, or has not spoken.
        Raises: NotFound."""

        def read(tx: Tx) -> ConversationId | None:
            tx.groups.get(group_id)
            numbers = {agent: seq for agent, _, seq in tx.groups.members(group_id)}
            seq = numbers.get(agent_id)
            return None if seq is None else tx.conversations.get_by_seq(agent_id, seq).id

        return await self._ports.store.read(read)

    async def list_messages(
        self, group_id: GroupId, *, limit: int, after_seq: int | None, newest_first: bool
    ) -> Sequence[GroupMessage]:
        """Entries of the transcript by number, each with the text of what was said. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        check_number("after_seq", after_seq)

        def read(tx: Tx) -> Sequence[GroupMessage]:
            tx.groups.get(group_id)
            found = tx.group_messages.list(group_id, after_seq=after_seq, newest_first=newest_first, limit=limit)
            return [
                entry if message is None else replace(entry, parts=message.parts)
                for entry, message in _with_messages(tx, found)
            ]

        return await self._ports.store.read(read)

    async def list_entries(self, group_id: GroupId, page: Page) -> Sequence[Entry]:
        """A page of the transcript; its cursors are ids of entries (`entry_id`). Raises: InvalidInput; NotFound: the
        group, or the page begins at no entry."""
        check_page(page)

        def read(tx: Tx) -> Sequence[Entry]:
            tx.groups.get(group_id)

            def query(
                *, above: int | None, below: int | None, newest_first: bool, limit: int
            ) -> Sequence[GroupMessage]:
                return tx.group_messages.list(
                    group_id, after_seq=above, before_seq=below, newest_first=newest_first, limit=limit
                )

            return _with_messages(tx, page.load(query, lambda cursor: _find_entry(tx, group_id, cursor).seq))

        return await self._ports.store.read(read)

    async def edit_message(
        self,
        group_id: GroupId,
        message_id: MessageId,
        part: EditedPart,
        parts: Sequence[Text | Image | ImageLink],
        *,
        author: Author | None = None,
    ) -> Entry:
        """Change what an agent's message of the transcript says, as in its own history. Who was shown it before keeps
        that.

        Raises: NotFound, ConversationBusy, EmptyMessage, MessageTooLarge; InvalidInput: it is no agent's.
        """
        entry = await self._ports.store.read(lambda tx: _find_entry(tx, group_id, message_id))
        if entry.sender_id is None or entry.message_id is None:
            raise InvalidInput(
                f"{message_id} is no agent's: what else stands in a transcript can't change, because the agents were"
                " shown it. Reset the group, or send another message"
            )
        return entry, await self._messages.edit(
            entry.sender_id, entry.message_id, part, parts, author=author or outside()
        )


def entry_id(entry: GroupMessage) -> MessageId:
    """The id of an entry of a transcript: of the message that it stands for, or one of its own."""
    return entry.message_id or MessageId(derived_id("message", entry.group_id, str(entry.seq)))


def is_deleted(entry: GroupMessage, message: Message | None) -> bool:
    """Whether the entry stands for a message of an agent that was deleted since, or whose agent or conversation was."""
    return message is None and entry.sender_id is not None and entry.message_id is not None


def _find_entry(tx: Tx, group_id: GroupId, message_id: str) -> GroupMessage:
    """The entry with this id. Raises: NotFound."""
    found = tx.group_messages.find(group_id, MessageId(message_id))
    others = () if found else tx.group_messages.list_without_message(group_id)
    found = found or next((entry for entry in others if entry_id(entry) == message_id), None)
    if found is None:
        raise NotFound("message", message_id)
    return found


def _with_messages(tx: Tx, entries: Sequence[GroupMessage]) -> Sequence[Entry]:
    """The entries with the messages that they stand for; one whose agent is gone has none."""
    wanted: defaultdict[AgentId, list[int]] = defaultdict(list)
    for entry in entries:
        if entry.sender_id is not None and entry.message_seq is not None:
            wanted[entry.sender_id].append(entry.message_seq)
    messages = {one.id: one for agent_id, seqs in wanted.items() for one in tx.messages.list_by_seqs(agent_id, seqs)}
    return [(entry, messages.get(entry.message_id) if entry.message_id else None) for entry in entries]


def _resolve_group(tx: Tx, name: str) -> Group:
    """Raises: NotFound, InvalidInput."""
    if is_id("group", name):
        return tx.groups.get(GroupId(name))
    known = tx.groups.page(where=GroupFilter(), limit=LIMIT_MAX)
    found = [group for group in known if name and group.id.startswith(name) and name.startswith("group-")]
    found = found or [group for group in known if group.description == name][:1]
    if len(found) > 1:
        ids = ", ".join(group.id for group in found[:NAMES_SHOWN])
        raise InvalidInput(f"{name!r} is the beginning of several ids: {ids}; give more of it")
    if not found:
        names = ", ".join(repr(group.description or group.id) for group in known[:NAMES_SHOWN])
        raise NotFound("group", name, hint=f"there are {names}" if names else "there is none yet")
    return found[0]
