"""What was said: the messages of an agent, and its conversations; and what all parts of an agent's class share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from perdure.core.blocks import Block
from perdure.core.conversations import CompactionSettings, Conversation, Reset
from perdure.core.ids import AgentId, ConversationId, MessageId
from perdure.core.messages import Image, Message, Text
from perdure.domain.conversations.importing import ImportedMessage
from perdure.domain.conversations.units import ConversationChanges
from perdure.engine.conversations.edit import EditedPart
from perdure.library.checks import check_text, outside
from perdure.library.parts import AsyncAgentPart
from perdure.library.services.history import ImportResult
from perdure.library.services.store import Services
from perdure.library.services.transcripts import TranscriptEntry
from perdure.library.units import find_conversation
from perdure.storage.tx import Tx


class AsyncAgentBase(AsyncAgentPart):
    """An agent, and the services that its methods call."""

    def __init__(self, services: Services, agent_id: AgentId | None) -> None:
        super().__init__(services.app, agent_id)
        self._services = services


class AsyncHistory(AsyncAgentBase):
    """The messages of an agent; `AsyncAgent` has these methods."""

    async def messages(
        self,
        *,
        conversation: ConversationId | None = None,
        limit: int = 100,
        before_seq: int | None = None,
        after_seq: int | None = None,
        newest_first: bool = False,
        reset: bool = False,
    ) -> Sequence[Message]:
        """A page of the history: of one conversation, or of all of them.

        Args:
            reset: also what a `reset` took out of view.
        Raises: InvalidInput, NotFound.
        """
        return await self._services.messages.list(
            self.id,
            conversation=conversation,
            limit=limit,
            before_seq=before_seq,
            after_seq=after_seq,
            newest_first=newest_first,
            reset=reset,
        )

    async def transcript(
        self,
        *,
        conversation: ConversationId | None = None,
        since: datetime | str | None = None,
        limit: int = 100,
        before_seq: int | None = None,
    ) -> Sequence[TranscriptEntry]:
        """The newest messages of one conversation, or of all, oldest first, each with its edits of memory, and
        where no answer came, why the run failed.

        Args:
            since: only messages from this time on: a time with a zone, or an ISO date or time, where the agent lives.
        Raises: InvalidInput, NotFound.
        """
        return await self._services.transcripts.list(
            self.id, conversation=conversation, since=since, limit=limit, before_seq=before_seq
        )

    async def update_message(
        self, message_id: MessageId, text: str, *, part: EditedPart | None = None, call_id: str | None = None
    ) -> Message:
        """Change what a message says, for later requests, lists and searches, and return it; its pictures stay. What
        models were sent before is not changed; `undo` takes it back.

        Args:
            part: "reasoning" changes the reasoning of an answer; by default it is what the message says.
            call_id: the call whose result is changed, where a message holds several.
        Raises: NotFound; ConversationBusy: a run has not ended; InvalidInput: it has no such part, or is the system
            message; EmptyMessage, MessageTooLarge.
        """
        check_text("text", text)
        message = await self._services.messages.get(message_id)
        images = [one for one in message.parts if isinstance(one, Image)]
        return await self._services.messages.edit(
            self.id, message_id, part or message.role, (Text(text), *images), call_id=call_id, author=outside()
        )

    async def message_count(self) -> int:
        """How many messages the history holds, over all conversations and with tool results."""
        return await self._services.messages.count(self.id)

    async def import_messages(
        self,
        messages: Iterable[ImportedMessage | Mapping[str, Any] | Sequence[Any]],
        *,
        conversation: ConversationId | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportResult:
        """Put history that took place elsewhere at the end of a conversation (default: the agent's first), in the order
        given.

        It is found by its own times. What the model's window has no room for is out of its view at once, behind
        summaries, and opened from there as anything else; no model is asked.

        Args:
            messages: (role, name, text, occurred_at), or `ImportedMessage`s, or mappings with the same names. Roles are
                user, assistant and system; times have a zone. All are checked before the first is stored.
            progress: takes how many messages are stored or skipped, after each transaction of up to 500.
        Raises: InvalidInput, naming the message by its place from 0, and nothing was stored; NotFound;
            ConversationBusy, ApprovalPending, StoreError: what was stored stays, and the same import goes on there,
            because a message that is there already is skipped.
        """
        return await self._services.messages.import_messages(
            self.id, messages, conversation=conversation, progress=progress
        )


class AsyncConversations(AsyncAgentBase):
    """The conversations of an agent; `AsyncAgent` has these methods."""

    async def new_conversation(
        self, *, summary: str | None = None, isolated_blocks: Sequence[str] = ()
    ) -> Conversation:
        """A new line of messages over the same memory; `summary` says what it is about.

        Args:
            isolated_blocks: labels of the agent's blocks; the conversation sees and edits copies of its own instead.
        Raises: InvalidInput, BlockNotFound.
        """
        made = await self._services.conversations.create(self.id, {"summary": summary}, isolated_labels=isolated_blocks)
        return made.conversation

    async def isolated_blocks(self, conversation: ConversationId) -> Sequence[Block]:
        """The blocks that a conversation has for itself, in the order of the agent's blocks. Raises: NotFound."""

        def read(tx: Tx) -> Sequence[Block]:
            found = find_conversation(tx, self._id, conversation)
            isolated = tx.blocks.list_isolated(self._id, found.seq).values()
            return [tx.blocks.get(block_id) for block_id in isolated if block_id is not None]

        return await self._ports.store.read(read)

    async def conversations(self, *, limit: int = 50, after_seq: int = -1) -> Sequence[Conversation]:
        """A page of the conversations, oldest first. Raises: InvalidInput: a limit below 1 or above 10,000."""
        return await self._services.conversations.list_of_agent(self.id, limit=limit, after_seq=after_seq)

    async def find_conversation(self, conversation: ConversationId | None = None) -> Conversation:
        """A conversation of this agent; by default its first. Raises: InvalidInput; NotFound, also for another
        agent's."""
        return await self._services.conversations.get(self.id, conversation)

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
        return (await self._services.conversations.update(self.id, conversation, changes)).conversation

    async def delete_conversation(self, conversation: ConversationId) -> None:
        """Take a conversation, and what was said in it, out of every list, search and view; its rows stay in the log
        until the agent is deleted.

        Raises: NotFound, also for another agent's; InvalidInput: it is the agent's first, which can be `reset`;
        ConversationBusy: a run has not ended.
        """
        await self._services.conversations.delete(self.id, conversation)

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
        forks = self._services.conversations
        made = await forks.fork(self.id, conversation, upto=upto, before=before, hidden=hidden)
        return made.conversation

    async def compact(
        self, *, conversation: ConversationId | None = None, settings: CompactionSettings | None = None
    ) -> str:
        """Take the oldest messages of a conversation (default: the agent's first) out of view, behind a summary, and
        return the summary. They stay in the log, and searches find them. A full window does that by itself. A field of
        `settings` wins over the agent's setting `compaction`.

        Raises: InvalidInput; NotFound; ConversationBusy: a run has not ended; ApprovalPending; ModelNotFound;
        LimitReached; NothingToCompact: no message is in view.
        """
        return (await self._services.conversations.compact(self.id, conversation, settings)).summary

    async def recompile(self, *, conversation: ConversationId | None = None, dry_run: bool = False) -> str:
        """The system prompt of a conversation (default: the agent's first), compiled with the memory of now, also for
        its next request; `dry_run` changes nothing. Edits of memory reach the model without it.

        Raises: InvalidInput; NotFound, also for another agent's.
        """
        return await self._services.conversations.recompile(self.id, conversation, dry_run=dry_run)

    async def reset(self, *, conversation: ConversationId | None = None) -> Sequence[Reset]:
        """Have a conversation begin anew, or all of them: what was said is out of view, for the model, in lists and in
        searches. Blocks, archives and files stay; so does the history, in the log (`messages(reset=True)`). Calls that
        wait for an answer are given up. One `Reset` of each conversation in which anything was said.

        Raises: InvalidInput, NotFound; ConversationBusy: a run has not ended; nothing is changed.
        """
        return await self._services.conversations.reset(self.id, conversation)

    async def resets(self, *, conversation: ConversationId | None = None, limit: int = 100) -> Sequence[Reset]:
        """When a conversation began anew, or each of them; newest first. Raises: InvalidInput, NotFound."""
        return await self._services.conversations.list_resets(self.id, conversation, limit=limit)
