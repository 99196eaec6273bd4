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

SUMMARY_CHARS = 20_000

DESCRIPTION = "description"
"""Where a conversation's settings hold it."""


class ConversationChanges(TypedDict, total=False):
    """The fields of a conversation that can change. A missing field stays; None removes a text."""

    summary: str | None
    description: str | None
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
    if "description" in changes:
        settings = {name: value for name, value in before.settings.items() if name != DESCRIPTION}
        after = replace(after, settings=settings | description_settings(changes["description"]))
    if "archived" in changes:
        archived = changes["archived"]
        if not isinstance(archived, bool):
            raise InvalidInput(f"archived is {archived!r:.80}: give True or False")
        if archived != (before.archived_at is not None):
            after = replace(after, archived_at=at if archived else None)
    return before if after == before else tx.conversations.put(after, at=at)


def check_summary(summary: Any) -> str | None:
    """Return the summary after checking it. Raises: InvalidInput: it is no text, or too long."""
    return _check_text("summary", summary)


def description_settings(description: Any) -> dict[str, Any]:
    """The settings of a conversation that hold its description. Raises: InvalidInput: it is no text, or too long."""
    return {} if description is None else {DESCRIPTION: _check_text("description", description)}


def _check_text(name: str, text: Any) -> str | None:
    """Return the text after checking it. Raises: InvalidInput: it is no text, or too long."""
    if text is not None and not isinstance(text, str):
        raise InvalidInput(f"{name} is {text!r:.80}: give a text")
    if text is not None and len(text) > SUMMARY_CHARS:
        raise InvalidInput(f"{name} has {len(text):,} characters: at most {SUMMARY_CHARS:,} are kept")
    return text
