"""Conversations: the lines of messages of an agent, over the same memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from perdure.app import App
from perdure.core.blocks import Author, Block
from perdure.core.conversations import (
    EPHEMERAL,
    CompactionSettings,
    Conversation,
    ConversationFilter,
    ConversationKey,
    ConversationOrder,
    Reset,
)
from perdure.core.errors import NotFound
from perdure.core.features import Point
from perdure.core.ids import AgentId, BlockId, ConversationId, MessageId
from perdure.domain.agents.units import NewAgent, create_agent
from perdure.domain.blocks.units import isolate_blocks
from perdure.domain.conversations.units import ConversationChanges, changed_settings, update_conversation
from perdure.engine.approvals.answers import WaitingCalls, find_all_pending
from perdure.engine.compaction.compact_view import CompactionCounts, compact
from perdure.engine.conversations.importing import fork
from perdure.engine.conversations.reset import delete_conversation, reset_conversations
from perdure.engine.prompt.system_messages import recompile, renew_system_message
from perdure.library.parts.checks import Page, check_limit, check_number, outside
from perdure.library.parts.part import AsyncAgentPart, find_conversation, reads, writes
from perdure.library.parts.providers import ModelHandles
from perdure.storage.tx import Tx

COMPACTED: Point[[App, AgentId], None] = Point("compacted")
"""A conversation of the agent was compacted because somebody asked for it."""

OPENING_MAX = 5
"""Among so many messages at its beginning that of a person is looked for which names a conversation."""


@dataclass(frozen=True, slots=True)
class FullConversation:
    """A conversation, the ids of messages in its view (see `ids_in_view`), and of blocks of its own."""

    conversation: Conversation
    message_ids: Sequence[MessageId]
    isolated_block_ids: Sequence[BlockId]


class AsyncConversations(AsyncAgentPart):
    """The conversations of an agent, or of all, inherited by `AsyncAgent`. `conversation=None` is the first one."""

    async def new_conversation(
        self, *, summary: str | None = None, isolated_blocks: Sequence[str] = ()
    ) -> Conversation:
        """A new line of messages over the same memory; `summary` says what it is about.

        Args:
            isolated_blocks: labels of the agent's blocks; the conversation sees and edits copies of its own instead.
        Raises: InvalidInput, BlockNotFound.
        """
        made = await self.create_conversation({"summary": summary}, isolated_labels=isolated_blocks)
        return made.conversation

    async def create_conversation(
        self,
        values: ConversationChanges | None = None,
        *,
        hidden: bool = False,
        isolated_labels: Sequence[str] = (),
        author: Author | None = None,
    ) -> FullConversation:
        """A new conversation.

        Args:
            hidden: it is in no page.
            isolated_labels: of the agent's blocks; the conversation sees and edits copies of its own in their place.
        Raises: InvalidInput, ModelNotFound; NotFound: there is no such agent; BlockNotFound.
        """
        values = await self._resolved(values or {})
        summary, settings = values.get("summary"), changed_settings({}, values)
        conversation_id, inputs = ConversationId(self._ports.ids.new("conversation")), self._ports.inputs()

        def create(tx: Tx) -> FullConversation:
            """Create the conversation, with its own copies of the isolated blocks."""
            conversation = tx.conversations.add(
                self.id, conversation_id, at=inputs.now, summary=summary, settings=settings, hidden=hidden
            )
            isolate_blocks(
                tx, self.id, conversation.seq, isolated_labels, inputs.ids, author=author or outside(), at=inputs.now
            )
            renew_system_message(tx, self.id, conversation.seq, inputs)
            return _load_states(tx, [conversation])[0]

        return await self._ports.store.write(create)

    async def create_ephemeral(
        self, model: str, system: str, values: ConversationChanges | None = None, *, author: Author | None = None
    ) -> FullConversation:
        """A new conversation that belongs to no agent of a user: it and its agent are in no list, the agent has this
        model and prompt, no blocks and no tools, and is deleted with it. Raises: InvalidInput, ModelNotFound."""
        model = await ModelHandles(self._app).resolve(model)
        values = {**(values or {}), "model": model}
        summary, settings = values.get("summary"), changed_settings({EPHEMERAL: True}, values)
        conversation_id, inputs = ConversationId(self._ports.ids.new("conversation")), self._ports.inputs()
        new = NewAgent(name="Ephemeral conversation", model=model, system=system, tools=(), hidden=True)

        def create(tx: Tx) -> FullConversation:
            """Create the hidden agent and its conversation."""
            agent = create_agent(tx, new, ids=self._ports.ids, author=author or outside(), at=inputs.now)
            conversation = tx.conversations.add(
                agent.id, conversation_id, at=inputs.now, summary=summary, settings=settings, hidden=True
            )
            for seq in (0, conversation.seq):
                renew_system_message(tx, agent.id, seq, inputs)
            return _load_states(tx, [conversation])[0]

        return await self._ports.store.write(create)

    @reads
    def isolated_blocks(self, tx: Tx, conversation: ConversationId) -> Sequence[Block]:
        """The blocks that a conversation has for itself, in the order of the agent's blocks. Raises: NotFound."""
        found = find_conversation(tx, self._id, conversation)
        isolated = tx.blocks.list_isolated(self._id, found.seq).values()
        return [tx.blocks.get(block_id) for block_id in isolated if block_id is not None]

    async def conversations(self, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]:
        """A page of the conversations, oldest first. Raises: InvalidInput: a limit below 1 or above 10,000."""
        check_limit(limit)
        check_number("after_seq", after_seq)
        return await self._ports.store.read(lambda tx: tx.conversations.list(self.id, limit=limit, after_seq=after_seq))

    @reads
    def named_conversations(
        self, tx: Tx, *, archived: bool = False, limit: int = 50
    ) -> Sequence[tuple[Conversation, str]]:
        """The agent's conversations by their last message, newest first, including its first one, or the archived ones;
        each with the text of its first message, empty if it has a summary."""
        check_limit(limit)
        where = ConversationFilter(agent_id=self._id, archived=archived)
        found = [*tx.conversations.page(where, order="last_message", limit=limit)]
        if not archived:
            found.append(tx.conversations.get_by_seq(self._id, 0))
        found.sort(key=lambda one: one.last_message_at or one.created_at, reverse=True)
        return [(one, "" if one.summary else _opening_of(tx, one)) for one in found]

    async def find_conversation(self, conversation: ConversationId | None = None) -> Conversation:
        """A conversation of this agent (default: its first). Raises: InvalidInput; NotFound, also for another's."""
        return await self._ports.store.read(find_conversation, self._agent_id, conversation)

    @reads
    def conversation_state(self, tx: Tx, conversation: ConversationId | None = None) -> FullConversation:
        """The conversation with the messages in its view. Raises: InvalidInput, NotFound."""
        return _load_states(tx, [find_conversation(tx, self._agent_id, conversation)])[0]

    @reads
    def page_of_states(
        self, tx: Tx, where: ConversationFilter, page: Page, order: ConversationOrder
    ) -> Sequence[FullConversation]:
        """A page of the conversations that match a filter, without the agents' first ones. Raises: NotFound."""
        check_limit(page.limit)
        after = None if page.after is None else ConversationId(page.after)
        found = tx.conversations.page(where, order=order, ascending=page.ascending, limit=page.limit, after=after)
        return _load_states(tx, found)

    @reads
    def conversation_of_message(self, tx: Tx, message_id: MessageId) -> Conversation:
        """The conversation that a message is in. Raises: NotFound, also for another agent's."""
        message = tx.messages.get(message_id)
        if self._agent_id not in (None, message.agent_id):
            raise NotFound("message", message_id, hint="another agent has it")
        return tx.conversations.get_by_seq(message.agent_id, message.conversation_seq)

    async def update_conversation(
        self, conversation: ConversationId, **changes: Unpack[ConversationChanges]
    ) -> Conversation:
        """Change fields of a conversation and return it.

        Args:
            changes: `summary` and `description`: what it is about, at most 20,000 characters each. `archived`: a chat
                does not continue it by itself; it still takes messages. `model`, `options` (by the names of an agent's
                settings) and `context_window_limit`: what it has in place of the agent's; None: the agent's.
                `model_settings`: the options as the server shows them. A missing field stays.
        Raises: InvalidInput: a value that can't be used, no such field; NotFound, also for another agent's.
        """
        return (await self.change_conversation(conversation, changes)).conversation

    async def change_conversation(
        self, conversation: ConversationId | None, changes: ConversationChanges
    ) -> FullConversation:
        """Change fields of a conversation, and return it as changed. Raises: InvalidInput, NotFound, ModelNotFound."""
        now = self._ports.clock.now()
        changes = await self._resolved(changes)

        def update(tx: Tx) -> FullConversation:
            """Change the fields of the conversation."""
            found = find_conversation(tx, self._agent_id, conversation)
            return _load_states(tx, [update_conversation(tx, found.id, changes, at=now)])[0]

        return await self._ports.store.write(update)

    async def _resolved(self, changes: ConversationChanges) -> ConversationChanges:
        """The changes, with the model that a client names, if it does, by its handle here. Raises: ModelNotFound."""
        handle = changes.get("model")
        if handle is None:
            return changes
        return {**changes, "model": await ModelHandles(self._app).resolve(handle, self._agent_id)}

    async def delete_conversation(self, conversation: ConversationId | None, *, author: Author | None = None) -> None:
        """Remove a conversation from lists, searches and views; its rows stay until the agent is deleted.

        Raises: NotFound, also for another agent's; InvalidInput: it is the agent's first, which can be `reset`;
        ConversationBusy: a run has not ended.
        """
        found = await self.find_conversation(conversation)
        await delete_conversation(found.id, self._ports, author=author or outside())

    async def fork_conversation(
        self,
        conversation: ConversationId | None = None,
        *,
        upto: MessageId | None = None,
        before: MessageId | None = None,
        hidden: bool = False,
    ) -> Conversation:
        """A new conversation with a copy of what another one (default: the agent's first) has in view, up to a message
        if one is given, or up to the one `before` it. A `hidden` one is in no list.

        Raises: InvalidInput: the message is not in its view; NotFound, also for another agent's.
        """
        return (await self.fork_state(conversation, upto=upto, before=before, hidden=hidden)).conversation

    @writes
    def fork_state(
        self,
        tx: Tx,
        conversation: ConversationId | None,
        *,
        upto: MessageId | None = None,
        before: MessageId | None = None,
        hidden: bool = False,
    ) -> FullConversation:
        """A new conversation with a copy of what this one has in view, all or up to a message, or up to the one
        `before` it. Raises: InvalidInput, NotFound."""
        inputs, fork_id = self._ports.inputs(), ConversationId(self._ports.ids.new("conversation"))
        source = find_conversation(tx, self._agent_id, conversation)
        return _load_states(tx, [fork(tx, source, fork_id, inputs, upto=upto, before=before, hidden=hidden)])[0]

    async def compact(
        self, *, conversation: ConversationId | None = None, settings: CompactionSettings | None = None
    ) -> str:
        """Take the oldest messages of a conversation (default: the agent's first) out of view, behind a summary, and
        return the summary. They stay in the log, and searches find them. A full window does that by itself. A field of
        `settings` wins over the agent's setting `compaction`.

        Raises: InvalidInput; NotFound; ConversationBusy: a run has not ended; ApprovalPending; ModelNotFound;
        LimitReached; NothingToCompact: no message is in view.
        """
        return (await self.compact_view(conversation, settings)).summary

    async def compact_view(
        self, conversation: ConversationId | None, settings: CompactionSettings | None = None
    ) -> CompactionCounts:
        """Take messages out of the view of a conversation, behind a summary. `settings` win over the agent's.

        Raises: InvalidInput, NotFound, Conflict, ConversationBusy, ApprovalPending, ModelNotFound, LimitReached;
            NothingToCompact: no message is in view.
        """
        if settings is not None and settings.model is not None:
            settings = replace(settings, model=await ModelHandles(self._app).resolve(settings.model))
        found = await self.find_conversation(conversation)
        compacted = await compact(found.agent_id, found.seq, settings, self._ports)
        COMPACTED(self._app, found.agent_id)
        return compacted

    @writes
    def recompile(
        self, tx: Tx, *, conversation: ConversationId | None = None, dry_run: bool = False, keep_time: bool = False
    ) -> str:
        """Compile the system prompt of a conversation (default: the agent's first) with the memory of now, also for its
        next request, and return it; `dry_run` changes nothing. With `keep_time` the prompt names the time of the last
        compilation still. Edits of memory reach the model without it.

        Raises: InvalidInput; NotFound, also for another agent's.
        """
        inputs = self._ports.inputs()
        found = find_conversation(tx, self._agent_id, conversation)
        return recompile(tx, found.agent_id, found.seq, inputs, dry_run=dry_run, keep_time=keep_time)

    async def reset(
        self, *, conversation: ConversationId | None = None, author: Author | None = None
    ) -> Sequence[Reset]:
        """Take what was said in a conversation, or in all, out of view: for the model, in lists and in searches.
        Blocks, archives and files stay; so does the history, in the log (`messages(reset=True)`). Calls that wait for
        an answer are given up. Returns a `Reset` for each conversation in which anything was said.

        Raises: InvalidInput, NotFound; ConversationBusy: a run has not ended; nothing is changed.
        """
        seq = None if conversation is None else (await self.find_conversation(conversation)).seq
        return await reset_conversations(self.id, seq, self._ports, author=author or outside())

    async def resets(self, *, conversation: ConversationId | None = None, limit: int = 100) -> Sequence[Reset]:
        """The resets of a conversation, or of all of the agent's, newest first. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        seq = None if conversation is None else (await self.find_conversation(conversation)).seq
        return await self._ports.store.read(lambda tx: tx.resets.list(self.id, conversation_seq=seq, limit=limit))


def _opening_of(tx: Tx, conversation: Conversation) -> str:
    """The text of the first message of a person in a conversation; empty: nothing was said yet."""
    first = tx.messages.list(conversation.agent_id, conversation_seq=conversation.seq, limit=OPENING_MAX)
    return next((one.text for one in first if one.role == "user" and one.text.strip()), "")


def ids_in_view(
    tx: Tx, conversations: Sequence[Conversation], pending: Mapping[ConversationKey, WaitingCalls]
) -> Mapping[ConversationKey, Sequence[MessageId]]:
    """Conversation -> the ids of its system message and of its messages in view, oldest first. But the message whose
    calls wait (`pending`) comes last, behind the results of other calls: clients look there for what they answer."""
    keys = [conversation.key for conversation in conversations]
    systems, shown = tx.system_messages.find_ids(keys), tx.conversations.list_view_ids(keys)
    last = {one.message.id for one in pending.values()}
    ids = {key: [*([systems[key]] if key in systems else []), *shown[key]] for key in keys}
    return {key: sorted(message_ids, key=last.__contains__) for key, message_ids in ids.items()}


def _load_states(tx: Tx, conversations: Sequence[Conversation]) -> Sequence[FullConversation]:
    """The conversations, each with the ids of the messages in its view, and of its own blocks."""
    message_ids = ids_in_view(tx, conversations, find_all_pending(tx, conversations))
    blocks = tx.blocks.list_isolated_of([*message_ids])
    return [
        FullConversation(
            conversation,
            message_ids=message_ids[conversation.key],
            isolated_block_ids=[block_id for block_id in blocks[conversation.key].values() if block_id is not None],
        )
        for conversation in conversations
    ]
