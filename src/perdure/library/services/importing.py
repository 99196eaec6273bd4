"""History that took place elsewhere, put into an agent's own, with its times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId
from perdure.domain.batching import batches
from perdure.domain.conversations.importing import ImportedMessage, Importer, imported_message
from perdure.engine.conversations.importing import import_drafts
from perdure.engine.ports import Ports


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """The result of an import.

    Args:
        skipped: messages that were there already, from an earlier import of the same history.
        reset: how many of the skipped ones a reset has taken out of view.
        out_of_order: messages that are older than one before them; they keep the order of the import.
    """

    conversation_id: ConversationId
    imported: int
    skipped: int
    out_of_order: int
    reset: int = 0

    @property
    def hint(self) -> str:
        """Advice if a reset hides imported messages; else empty."""
        if not self.reset:
            return ""
        subject = "1 of the skipped messages was" if self.reset == 1 else f"{self.reset:,} of the skipped messages were"
        return (
            f"{subject} taken out of view by a reset, and stays so: import the history into a new conversation instead"
        )


def check_messages(messages: Any, *, limit_chars: int) -> list[ImportedMessage]:
    """The messages, all of them looked at. Raises: InvalidInput, naming the first that can't be used by its place from
    0."""
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise InvalidInput(f"messages is {messages!r:.80}: give a list of (role, name, text, occurred_at)")
    checked = []
    for index, message in enumerate(messages):
        try:
            checked.append(imported_message(message, limit_chars=limit_chars))
        except InvalidInput as error:
            raise InvalidInput(f"message {index}: {error}") from error
    return checked


async def import_history(
    ports: Ports,
    conversation: Conversation,
    messages: Iterable[ImportedMessage],
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> ImportResult:
    """Put the messages at the conversation's end, in transactions of up to 500; what is there already is skipped.

    Args:
        progress: takes how many messages are stored or skipped, after each transaction.
    Raises: ConversationBusy, ApprovalPending, StoreError: what was imported before stays; the same import goes on
        there.
    """
    importer = Importer(conversation.agent_id, conversation.id)
    done = new = reset = 0
    for batch in batches(messages):
        drafts = [importer.draft(message) for message in batch]
        added = await import_drafts(conversation.agent_id, conversation.seq, drafts, ports)
        new, reset = new + added.new, reset + added.reset
        done += len(drafts)
        progress(done)
    return ImportResult(
        conversation_id=conversation.id,
        imported=new,
        skipped=done - new,
        out_of_order=importer.out_of_order,
        reset=reset,
    )
