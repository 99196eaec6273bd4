"""Units of work on a conversation's own fields; and batches of results of tools, shown as one message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.conversations import MODEL, OPTIONS, WINDOW, Conversation
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId, RunId, StepId
from perdure.core.messages import Message
from perdure.domain.agents.options import check_options
from perdure.domain.agents.units import check_window
from perdure.domain.values import check_fields, check_short_text
from perdure.storage.tx import Tx

SUMMARY_CHARS = 20_000

DESCRIPTION, MODEL_SETTINGS = "description", "model_settings"
"""Where a conversation's settings hold them."""


class ConversationChanges(TypedDict, total=False):
    """The fields of a conversation that can change. A missing field stays; None removes a text, or what the
    conversation has in place of the agent's.

    Args:
        model: the handle of its own model, which is known to be there.
        model_settings: the options as a client has sent them, to be shown again.
        options: the same by the names of an agent's settings.
        context_window_limit: in tokens.
    """

    summary: str | None
    description: str | None
    archived: bool
    model: str | None
    model_settings: Mapping[str, Any] | None
    options: Mapping[str, Any] | None
    context_window_limit: int | None


def update_conversation(
    tx: Tx, conversation_id: ConversationId, changes: ConversationChanges, *, at: datetime
) -> Conversation:
    """Change a conversation and return it. Raises: NotFound; InvalidInput: an invalid value or field."""
    check_fields("a conversation", changes, ConversationChanges.__annotations__)
    tx.agents.lock(tx.conversations.get(conversation_id).agent_id)
    before = after = tx.conversations.get(conversation_id)
    if "summary" in changes:
        after = replace(after, summary=changes["summary"])
    after = replace(after, settings=changed_settings(before.settings, changes))
    if "archived" in changes:
        archived = changes["archived"]
        if not isinstance(archived, bool):
            raise InvalidInput(f"archived is {archived!r:.80}: give True or False")
        if archived != (before.archived_at is not None):
            after = replace(after, archived_at=at if archived else None)
    shapes_requests = any(before.settings.get(name) != after.settings.get(name) for name in (MODEL, OPTIONS))
    return before if after == before else tx.conversations.put(after, at=at, shapes_requests=shapes_requests)


def changed_settings(before: Mapping[str, Any], changes: ConversationChanges) -> dict[str, Any]:
    """Return a conversation's settings, `before`, with the changes, after checking these. Raises: InvalidInput."""
    for name in ("summary", "description"):
        check_short_text(name, changes.get(name), SUMMARY_CHARS)
    settings = dict(before)
    if "description" in changes:
        settings[DESCRIPTION] = changes["description"]
    for name in (MODEL, MODEL_SETTINGS):
        if name in changes:
            settings[name] = changes.get(name)
    if "options" in changes or "context_window_limit" in changes:
        options = dict(before.get(OPTIONS) or {})
        window = changes.get("context_window_limit", options.pop(WINDOW, None))
        if "options" in changes:
            options = {**(changes["options"] or {})}
            check_options(options, before.get(OPTIONS) or {})
        if window is not None:
            options[WINDOW] = check_window(window)
        settings[OPTIONS] = options or None
    return {name: value for name, value in settings.items() if value is not None}


Batch = tuple[RunId | None, StepId]
"""The run that added the results, and the step that made the calls."""


def batch_of(message: Message) -> Batch | None:
    """Return the batch of results to which a message belongs; None: it holds no results."""
    if message.role != "tool" or message.kind != "message" or message.step_id is None:
        return None
    return message.run_id, message.step_id


def join_batches(messages: Iterable[Message]) -> list[Message]:
    """Return the messages in order, those of each batch joined into one, as `join_rows` does, where the first was."""
    rows: dict[Batch, list[Message]] = {}
    entries: list[Message | Batch] = []
    for message in messages:
        batch = batch_of(message)
        if batch is None:
            entries.append(message)
            continue
        if batch not in rows:
            entries.append(batch)
        rows.setdefault(batch, []).append(message)
    return [entry if isinstance(entry, Message) else join_rows(rows[entry]) for entry in entries]


def join_rows(rows: Iterable[Message]) -> Message:
    """Return the rows of one batch, at least one, as one message: the first row with the results of all."""
    ordered = sorted(rows, key=lambda row: row.seq)
    return replace(ordered[0], parts=tuple(part for row in ordered for part in row.parts))
