"""What an editor is told of a run: pieces of the answer, tool calls with their results, changes of memory as diffs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import acp
from acp.schema import ToolCallUpdate, ToolKind

from perdure.core.events import Delta, MemoryEdited, MessageAdded, StoredEvent
from perdure.core.messages import Message, Reasoning, Text, ToolCall, ToolResult, text_of
from perdure.core.tools.answers import PendingCall

Update = Any
"""One of the protocol's updates of a session."""

_KINDS: Mapping[str, ToolKind] = {
    "fetch": "fetch",
    "search": "search",
    "run": "execute",
    "open": "read",
    "read": "read",
}
"""What a word in a tool's name says about its kind."""
_EDITS = ("memory", "insert", "append", "replace", "archival_memory_insert", "rethink")


class RunUpdates:
    """Turns the events of a run into updates, in order. A text that was streamed is not sent again when it is stored.

    Args:
        values: label of a block -> its value before the run, so that a change is shown with both texts.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._streamed: set[tuple[str, str]] = set()  # (message, kind) of pieces that were sent

    def of(self, sent: StoredEvent | Delta) -> Iterator[Update]:
        """Yield the updates of an event."""
        if isinstance(sent, Delta):
            yield from self._of_delta(sent)
        elif isinstance(sent.event, MessageAdded) and sent.event.message is not None:
            yield from self._of_message(sent.event.message)

    def changed(self, edit: MemoryEdited, value: str) -> Update:
        """Return the update of a block that changed to a value, as a diff of a file of its name."""
        before, self._values[edit.label] = self._values.get(edit.label, ""), value
        path = f"memory/{edit.label}.md"
        return acp.start_tool_call(
            f"memory-{edit.block_id}-{edit.version}",
            f"Memory changed: {edit.label}",
            kind="edit",
            status="completed",
            content=[acp.tool_diff_content(path, value, before)],
        )

    def _of_delta(self, delta: Delta) -> Iterator[Update]:
        if delta.kind == "text":
            self._streamed.add((delta.message_id, "text"))
            yield acp.update_agent_message_text(delta.text)
        elif delta.kind == "reasoning":
            self._streamed.add((delta.message_id, "reasoning"))
            yield acp.update_agent_thought_text(delta.text)

    def _of_message(self, message: Message) -> Iterator[Update]:
        if message.role == "user":
            return
        for part in message.parts:
            kind = "reasoning" if isinstance(part, Reasoning) else "text"
            if isinstance(part, Text | Reasoning) and (message.id, kind) in self._streamed:
                continue
            yield from _of_part(part)


def replay(message: Message) -> Iterator[Update]:
    """Yield the updates that show a message of the history."""
    if message.kind != "message":
        return
    if message.role == "user":
        if text := text_of(message.parts):
            yield acp.update_user_message_text(text)
        return
    for part in message.parts:
        yield from _of_part(part)


def _of_part(part: object) -> Iterator[Update]:
    """Yield the updates of a part of a model's message, or of the results of its calls."""
    match part:
        case Text(text=text) if text:
            yield acp.update_agent_message_text(text)
        case Reasoning(text=text) if text:
            yield acp.update_agent_thought_text(text)
        case ToolCall() if part.speech:
            yield acp.update_agent_message_text(part.speech)
        case ToolCall():
            yield acp.start_tool_call(
                part.call_id, part.name, kind=_kind_of(part.name), status="pending", raw_input=_arguments(part)
            )
        case ToolResult() if part.name != "send_message":
            yield acp.update_tool_call(
                part.call_id,
                status="completed" if part.status == "success" else "failed",
                content=[acp.tool_content(acp.text_block(part.shown_text or part.text))],
                raw_output={"text": part.shown_text or part.text},
            )
        case _:
            pass


def permission_call(pending: PendingCall) -> ToolCallUpdate:
    """Return what an editor shows of a call that waits for a person, with the reason why it asks."""
    title = f"{pending.name}: {pending.reason}" if pending.reason else pending.name
    return ToolCallUpdate(
        tool_call_id=pending.call_id,
        title=title,
        kind=_kind_of(pending.name),
        status="pending",
        raw_input=_arguments(pending.call),
    )


def _kind_of(name: str) -> ToolKind:
    if any(word in name for word in _EDITS):
        return "edit"
    return next((kind for word, kind in _KINDS.items() if word in name), "other")


def _arguments(call: ToolCall) -> Any:
    """Return the arguments of a call as an object; as text where they are none."""
    try:
        return json.loads(call.own_arguments or "{}")
    except ValueError:
        return {"text": call.arguments}


__all__: Sequence[str] = ["RunUpdates", "Update", "permission_call", "replay"]
