"""The messages of an agent: pages of them, changes, and history that took place elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from perdure.core.blocks import Author
from perdure.core.conversations import SYSTEM_SEQ, Conversation
from perdure.core.ids import ConversationId, MessageId
from perdure.core.messages import Image, ImageLink, Message, Text
from perdure.domain.conversations.importing import ImportedMessage, Importer
from perdure.domain.corrections import message_item, record
from perdure.engine.conversations.edit import EditedPart, MessageEdit, edit_message
from perdure.engine.conversations.importing import import_waiting
from perdure.engine.prompt.system_messages import render_system_message
from perdure.engine.records.run_request import NewMessage
from perdure.library.messages.paging import (
    History,
    HistoryPage,
    ImportResult,
    check_messages,
    find_result,
    import_history,
    list_shown,
    load_whole,
)
from perdure.library.messages.requests import AsyncRequests, fetch_images
from perdure.library.parts.checks import check_limit, check_number, check_text, outside
from perdure.library.parts.part import find_conversation, reads
from perdure.storage.tx import Tx

T = TypeVar("T")


class AsyncHistory(AsyncRequests):
    """The messages of an agent, or of all; `AsyncAgent` has these methods."""

    @reads
    def messages(
        self,
        tx: Tx,
        *,
        conversation: ConversationId | None = None,
        limit: int = 100,
        before_seq: int | None = None,
        after_seq: int | None = None,
        newest_first: bool = False,
        reset: bool = False,
    ) -> Sequence[Message]:
        """A page of the history: of one conversation, or of all of them. `reset`: also what a `reset` took out of view.
        Raises: InvalidInput, NotFound."""
        check_limit(limit)
        check_number("before_seq", before_seq)
        check_number("after_seq", after_seq)
        return tx.messages.list(
            self.id,
            conversation_seq=None if conversation is None else find_conversation(tx, self.id, conversation).seq,
            limit=limit,
            before_seq=before_seq,
            after_seq=after_seq,
            newest_first=newest_first,
            reset=reset,
        )

    @reads
    def shown_messages(
        self,
        tx: Tx,
        conversation: ConversationId | Literal["default"] | None,
        page: HistoryPage,
        show: Callable[[Message], Sequence[T]],
    ) -> Sequence[T]:
        """A page of what `show` makes of the messages of a conversation ("default": the agent's first), or with None of
        all conversations; without an agent of all agents, without system messages.

        Raises: InvalidInput, NotFound.
        """
        inputs = self._ports.inputs()
        if conversation is None:
            if self._agent_id is not None:
                tx.agents.model(self._agent_id)
            return list_shown(History(tx, inputs, self._agent_id), page, show)
        found = find_conversation(tx, self._agent_id, None if conversation == "default" else conversation)
        return list_shown(History(tx, inputs, found.agent_id, found.seq), page, show)

    @reads
    def message(self, tx: Tx, message_id: MessageId) -> Message:
        """The message of this id, also a system message; a result with all of its batch. Raises: NotFound."""
        inputs = self._ports.inputs()
        agent_id, seq = tx.messages.place(message_id)
        # System messages have numbers of their own, below 0.
        shown = tx.system_messages.find(agent_id, seq - SYSTEM_SEQ) if seq < 0 else None
        return load_whole(tx, message_id) if shown is None else render_system_message(tx, shown, inputs)

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
        message = await self.message(message_id)
        images = [one for one in message.parts if isinstance(one, Image)]
        return await self.edit_message(message_id, part, (Text(text), *images), call_id=call_id, author=outside())

    async def edit_message(
        self,
        message_id: MessageId,
        part: EditedPart | None,
        parts: Sequence[Text | Image | ImageLink],
        *,
        call_id: str | None = None,
        author: Author | None = None,
    ) -> Message:
        """Change what a message of the agent says, and return it; `part`, `parts` and `call_id` are those of an
        `MessageEdit`; without a `part` it is what the message says.

        Raises: NotFound, ConversationBusy, InvalidInput, EmptyMessage, MessageTooLarge, TooMany, ToolError, StoreError.
        """
        [message], _ = await fetch_images(self._app, [NewMessage(tuple(parts))], None)
        part = part or (await self.message(message_id)).role
        edit = MessageEdit(part, tuple(one for one in message.parts if not isinstance(one, ImageLink)), call_id)
        limit = self._ports.settings.message_limit_chars
        inputs, by = self._ports.inputs(), author or outside()

        def change(tx: Tx) -> Message:
            """Change the message or result, and record the correction."""
            is_row = tx.messages.place(message_id)[1] >= 0  # not a conversation's system message
            row_id = find_result(tx, message_id, call_id) if call_id is not None and is_row else message_id
            before = [tx.messages.get(row_id)] if is_row else []
            after = edit_message(tx, self.id, row_id, edit, inputs, limit_chars=limit, author=by)
            for one in before:
                what = f"message of the {one.role}: {one.text}"
                record(tx, self.id, "message", what, [message_item(one, after)], at=inputs.now)
            return load_whole(tx, message_id)

        after = await self._ports.store.write(change)
        self._ports.unread.note((self.id, after.conversation_seq))
        self._app.runner.after_runs.note_change((self.id, after.conversation_seq))
        return after

    async def message_count(self) -> int:
        """How many messages the history holds, over all conversations and with tool results."""
        return await self._ports.store.read(lambda tx: tx.messages.count(self.id))

    async def import_messages(
        self,
        messages: Iterable[ImportedMessage | Mapping[str, Any] | Sequence[Any]],
        *,
        conversation: ConversationId | None = None,
        checked: bool = False,
        source: str = "",
        progress: Callable[[int], None] = lambda done: None,
    ) -> ImportResult:
        """Put history from elsewhere at the end of a conversation (default: the first), in the order given.

        It is found by its own times. What the model's window has no room for is out of its view at once, behind
        summaries, and opened from there as anything else; no model is asked.

        Args:
            messages: (role, name, text, occurred_at), or `ImportedMessage`s, or mappings with the same names. Roles are
                user, assistant and system; times have a zone. All are checked before the first is stored.
            checked: `messages` are `ImportedMessage`s, which are read as they are stored.
            source: what they come from, such as "chatgpt", by which all of it can be found; by default this import.
            progress: takes how many messages are stored or skipped, after each transaction of up to 500.
        Raises: InvalidInput, naming the message by its place from 0, and nothing was stored; NotFound;
            ConversationBusy, ApprovalPending, StoreError: what was stored stays, and the same import goes on there,
            because a message that is there already is skipped.
        """
        found: Iterable[Any] = messages
        if not checked:
            found = check_messages(messages, limit_chars=self._ports.settings.message_limit_chars)
        target = await self._ports.store.read(find_conversation, self.id, conversation)
        return await import_history(self._ports, target, found, source=source, progress=progress)

    async def import_waiting(self, conversation: Conversation, rows: Sequence[ImportedMessage]) -> None:
        """Put an answer of which calls wait for an approval or a client, and the results of its other calls, behind
        imported history. Raises: NotFound, ConversationBusy, ApprovalPending, StoreError."""
        importer = Importer(conversation.agent_id, conversation.id)
        drafts = [importer.draft(row) for row in rows]
        await import_waiting(conversation.agent_id, conversation.seq, drafts, self._ports, self._app.settings.max_steps)
