"""Units of work on what is said about a conversation."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId
from perdure.storage.tx import Tx

__all__ = ["SUMMARY_CHARS", "ConversationChanges", "as_summary", "update_conversation"]

SUMMARY_CHARS = 20_000


class ConversationChanges(TypedDict, total=False):
    """What may be changed of a conversation. What is not given stays; None takes a summary away."""

    summary: str | None
    archived: bool


def update_conversation(
    tx: Tx, conversation_id: ConversationId, changes: ConversationChanges, *, at: datetime
) -> Conversation:
    """The conversation as changed; as it was when nothing changes.

    Raises: NotFound; InvalidInput: a value that can't be used, no such field.
    """
    if unknown := [name for name in changes if name not in ConversationChanges.__annotations__]:
        there = ", ".join(ConversationChanges.__annotations__)
        raise InvalidInput(f"a conversation has no field {', '.join(unknown)} to change: there are {there}")
    tx.agents.lock(tx.conversations.get(conversation_id).agent_id)
    before = after = tx.conversations.get(conversation_id)
    if "summary" in changes:
        after = replace(after, summary=as_summary(changes["summary"]))
    if "archived" in changes:
        archived = changes["archived"]
        if not isinstance(archived, bool):
            raise InvalidInput(f"archived is {archived!r:.80}: give True or False")
        if archived != (before.archived_at is not None):
            after = replace(after, archived_at=at if archived else None)
    return before if after == before else tx.conversations.put(after, at=at)


def as_summary(summary: Any) -> str | None:
    """Raises: InvalidInput: it is no text, or too long."""
    if summary is not None and not isinstance(summary, str):
        raise InvalidInput(f"summary is {summary!r:.80}: give a text")
    if summary is not None and len(summary) > SUMMARY_CHARS:
        raise InvalidInput(f"summary has {len(summary):,} characters: at most {SUMMARY_CHARS:,} are kept")
    return summary
