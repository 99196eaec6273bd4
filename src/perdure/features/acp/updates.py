"""What an editor is shown of a session: pieces of the answer, tool calls with their results, changes of memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import acp
from acp import schema

from perdure.core.blocks import BlockVersion, MemoryEdit
from perdure.core.events import Delta, MemoryEdited, MessageAdded, StoredEvent, ToolStarted
from perdure.core.ids import MessageId
from perdure.core.messages import Image, Message, Reasoning, Text, ToolCall, ToolResult
from perdure.core.text.json_strings import json_object
from perdure.core.text.line_diff import diff_lines
from perdure.core.tools.answers import PendingCall

_WORDS: Mapping[schema.ToolKind, Sequence[str]] = {
    "search": ("search", "find", "grep"),
    "read": ("read", "open", "get", "list", "fetch"),
    "edit": ("insert", "append", "replace", "rethink", "write", "edit", "update", "delete"),
    "execute": ("run", "execute", "shell"),
}
"""Kind of tool -> words of the names of such tools."""


class SessionUpdates:
    """Turns messages and the events of runs into updates, in order.

    A text that was streamed is not sent again when it is stored. The ids of calls are unique within a run only, so an
    editor gets them with the id of their message.
    """

    def __init__(self) -> None:
        self._streamed: dict[tuple[MessageId, str], str] = {}  # (message, kind) -> what was sent of it
        self._open: dict[str, str] = {}  # call without a result -> its id for the editor

    def of(self, sent: StoredEvent | Delta) -> Iterator[Any]:
        """Yield the updates of an event of a run."""
        match sent if isinstance(sent, Delta) else sent.event:
            case Delta(kind="text" | "reasoning" as kind) as delta:
                key = delta.message_id, kind
                self._streamed[key] = self._streamed.get(key, "") + delta.text
                say = acp.update_agent_message if kind == "text" else acp.update_agent_thought
                yield from _chunk(say, delta.text, delta.message_id)
            case MessageAdded(message=Message() as message) if message.role != "user":
                yield from self.of_message(message)
            case ToolStarted(call_id=call_id) if call_id in self._open:
                yield acp.update_tool_call(self._open[call_id], status="in_progress")
            case MemoryEdited() as edit:
                yield memory_edit(edit)

    def of_message(self, message: Message) -> Iterator[Any]:
        """Yield the updates that show a message."""
        if message.kind != "message":
            return
        say = acp.update_user_message if message.role == "user" else acp.update_agent_message
        for part in message.parts:
            match part:
                case Text(text=text):
                    yield from _chunk(say, self._unsent_end(message.id, "text", text), message.id)
                case Reasoning(text=text):
                    yield from _chunk(
                        acp.update_agent_thought, self._unsent_end(message.id, "reasoning", text), message.id
                    )
                case Image() as image:
                    yield say(acp.image_block(image.data, image.media_type))
                case ToolCall() if part.speech:
                    yield from _chunk(say, part.speech, message.id)
                case ToolCall():
                    yield self._start(part, message.id)
                case ToolResult(call_id=call_id) if call_id in self._open:  # else its call was shown as a text
                    texts = [acp.text_block(part.shown_text or part.text)]
                    images = [acp.image_block(image.data, image.media_type) for image in part.images]
                    yield acp.update_tool_call(
                        self._open.pop(call_id),
                        status="completed" if part.status == "success" else "failed",
                        content=[*map(acp.tool_content, texts), *map(acp.tool_content, images)],
                    )
                case _:
                    pass

    def permission(self, pending: PendingCall, edits: Sequence[MemoryEdit]) -> schema.ToolCallUpdate:
        """Return what an editor shows of a waiting call: why it asks, and the memory changes it would make."""
        start = self._start(pending.call, pending.message_id)
        title = f"{pending.name}: {pending.reason}" if pending.reason else pending.name
        start.content = [_diff(edit.block.label, edit.diff) for edit in edits if edit.diff]
        return schema.ToolCallUpdate(**start.model_dump(exclude={"session_update", "title"}), title=title)

    def close(self) -> Iterator[Any]:
        """Yield the ends of calls that get no result any more, as their run was cancelled or failed."""
        for shown_id in self._open.values():
            yield acp.update_tool_call(shown_id, status="failed")
        self._open.clear()

    def _unsent_end(self, message_id: MessageId, kind: str, text: str) -> str:
        """Return the end of a text that was not streamed."""
        streamed = self._streamed.get((message_id, kind), "")
        return text[len(streamed) :] if text.startswith(streamed) else ""

    def _start(self, call: ToolCall, message_id: MessageId) -> Any:
        self._open[call.call_id] = shown_id = f"{message_id}/{call.call_id}"
        arguments, words = _arguments(call), re.split("[^a-z]+", call.name.lower())
        paths = [path for name in ("path", "file_path", "file") if isinstance(path := arguments.get(name), str)]
        return acp.start_tool_call(
            shown_id,
            call.name,
            kind=next((kind for kind, names in _WORDS.items() if not {*names}.isdisjoint(words)), "other"),
            status="pending",
            raw_input=arguments,
            locations=[schema.ToolCallLocation(path=path) for path in paths if PurePath(path).is_absolute()],
        )


def memory_edit(edit: MemoryEdited | BlockVersion) -> Any:
    """Return the update of a block that changed."""
    shown_id, title = f"memory-{edit.block_id}-{edit.version}", f"Memory changed: {edit.label}"
    return acp.start_tool_call(shown_id, title, kind="edit", status="completed", content=[_diff(edit.label, edit.diff)])


def _diff(label: str, diff: str) -> Any:
    """Return a change of a block as a diff of a file with the block's label; `diff` is a unified diff."""
    lines = [(mark, mark if mark == "…" else text) for mark, text in diff_lines(diff)]
    old, new = ("\n".join(text for mark, text in lines if mark in marks) for marks in ("- …", "+ …"))
    return acp.tool_diff_content(f"/memory/{label}.md", new, old)


def _chunk(say: Callable[[Any], Any], text: str, message_id: MessageId) -> Iterator[Any]:
    if text:
        chunk = say(acp.text_block(text))
        chunk.message_id = message_id
        yield chunk


def _arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call; a text that is no object as the argument `text`."""
    arguments = json_object(call.own_arguments or "{}")
    return {"text": call.arguments} if arguments is None else arguments
