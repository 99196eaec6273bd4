"""What was said: the messages of an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.core.ids import ConversationId, MessageId
from perdure.core.messages import Image, Message, Text
from perdure.domain.conversations.importing import ImportedMessage
from perdure.engine.conversations.edit import EditedPart
from perdure.library.agent_base import AsyncAgentBase
from perdure.library.checks import check_text, outside
from perdure.library.services.history import ImportResult
from perdure.library.services.transcripts import TranscriptEntry


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
