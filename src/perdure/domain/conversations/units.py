"""Units of work on a conversation's own fields."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId
from perdure.domain.values import check_fields
from perdure.storage.tx import Tx

__all__ = ["SUMMARY_CHARS", "ConversationChanges", "check_summary", "update_conversation"]

SUMMARY_CHARS = 20_000


class ConversationChanges(TypedDict, total=False):
    """The fields of a conversation that can change. A missing field stays; None removes the summary."""

    summary: str | None
    archived: bool


def update_conversation(
    tx: Tx, conversation_id: ConversationId, changes: ConversationChanges, *, at: datetime
) -> Conversation:
    """Change a conversation and return it. Raises: NotFound; InvalidInput: an invalid value or field."""
    check_fields("a conversation", changes, ConversationChanges.__annotations__)
    tx.agents.lock(tx.conversations.get(conversation_id).agent_id)
    before = after = tx.conversations.get(conversation_id)
    if "summary" in changes:
        after = replace(after, summary=check_summary(changes["summary"]))
    if "archived" in changes:
        archived = changes["archived"]
        if not isinstance(archived, bool):
            raise InvalidInput(f"archived is {archived!r:.80}: give True or False")
        if archived != (before.archived_at is not None):
            after = replace(after, archived_at=at if archived else None)
    return before if after == before else tx.conversations.put(after, at=at)


def check_summary(summary: Any) -> str | None:
    """Return the summary after checking it. Raises: InvalidInput: it is no text, or too long."""
    if summary is not None and not isinstance(summary, str):
        raise InvalidInput(f"summary is {summary!r:.80}: give a text")
    if summary is not None and len(summary) > SUMMARY_CHARS:
        raise InvalidInput(f"summary has {len(summary):,} characters: at most {SUMMARY_CHARS:,} are kept")
    return summary
