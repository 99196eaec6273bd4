"""What an editor is shown of a session: pieces of the answer, tool calls with their results, changes of memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import acp
from acp import schema

from perdure.core.events import Delta, DeltaStreamed, MemoryEdited, MessageAdded, StoredEvent, ToolStarted
from perdure.core.ids import BlockId, MessageId
from perdure.core.messages import Image, Message, Reasoning, Text, ToolCall, ToolResult
from perdure.core.text.line_diff import diff_lines
from perdure.core.tools.answers import PendingCall

Update = Any
"""One of the protocol's updates of a session."""

_WORDS: Mapping[schema.ToolKind, str] = {
    "fetch": "fetch browse download",
    "search": "search find grep query recall",
    "execute": "run execute shell bash command code",
    "read": "read open get list show view expand",
    "edit": "insert append replace rethink write edit update remember create apply",
    "delete": "delete remove forget",
}
"""Kind of tool -> words of names of such tools."""
_KINDS: Mapping[str, schema.ToolKind] = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_PATHS = ("path", "file_path", "file", "filename")
"""Arguments that may name a file."""


class SessionUpdates:
    """Turns messages and the events of runs into updates, in order.

    A text that was streamed is not sent again when it is stored. The ids of calls are unique within a run only, so an
    editor gets them with the id of their message.
    """

    def __init__(self) -> None:
        self._streamed: dict[tuple[MessageId, str], str] = {}  # (message, kind) -> what was sent of it
        self._open: dict[str, str] = {}  # call without a result -> its id for the editor

    def of(self, sent: StoredEvent | Delta) -> Iterator[Update]:
        """Yield the updates of an event of a run."""
        match sent if isinstance(sent, Delta) else sent.event:
            case Delta(kind="text" | "reasoning") as delta:
                yield from self._piece(delta)
            case DeltaStreamed(delta=Delta(kind="text" | "reasoning") as delta):
                yield from self._piece(delta)
            case MessageAdded(message=Message() as message) if message.role != "user":
                yield from self.of_message(message)
            case ToolStarted(call_id=call_id) if call_id in self._open:
                yield acp.update_tool_call(self._open[call_id], status="in_progress")
            case MemoryEdited() as edit:
                yield memory_edit(edit.block_id, edit.label, edit.version, edit.diff)

    def of_message(self, message: Message) -> Iterator[Update]:
        """Yield the updates that show a message."""
        if message.kind != "message":
            return
        say = acp.update_user_message if message.role == "user" else acp.update_agent_message
        for part in message.parts:
            match part:
                case Text(text=text):
                    yield from _chunk(say, self._rest(message.id, "text", text), message.id)
                case Reasoning(text=text):
                    yield from _chunk(acp.update_agent_thought, self._rest(message.id, "reasoning", text), message.id)
                case Image() as image:
                    yield say(acp.image_block(image.data, image.media_type))
                case ToolCall() if part.speech:
                    yield from _chunk(say, part.speech, message.id)
                case ToolCall():
                    yield self._start(part, message.id)
                case ToolResult(call_id=call_id) if call_id in self._open:  # else its call was shown as a text
                    yield _result(self._open.pop(call_id), part)
                case _:
                    pass

    def permission(self, pending: PendingCall) -> schema.ToolCallUpdate:
        """Return what an editor shows of a call that waits for a person, with the reason why it asks."""
        start = self._start(pending.call, pending.message_id)
        title = f"{pending.name}: {pending.reason}" if pending.reason else pending.name
        return schema.ToolCallUpdate(**start.model_dump(exclude={"session_update", "title"}), title=title)

    def close(self) -> Iterator[Update]:
        """Yield the ends of calls that get no result any more, as their run was cancelled or failed."""
        for shown_id in self._open.values():
            yield acp.update_tool_call(shown_id, status="failed")
        self._open.clear()

    def _piece(self, delta: Delta) -> Iterator[Update]:
        key = delta.message_id, delta.kind
        self._streamed[key] = self._streamed.get(key, "") + delta.text
        say = acp.update_agent_message if delta.kind == "text" else acp.update_agent_thought
        yield from _chunk(say, delta.text, delta.message_id)

    def _rest(self, message_id: MessageId, kind: str, text: str) -> str:
        """What was not streamed of a text."""
        streamed = self._streamed.get((message_id, kind), "")
        return text[len(streamed) :] if text.startswith(streamed) else ""

    def _start(self, call: ToolCall, message_id: MessageId) -> Update:
        self._open[call.call_id] = shown_id = f"{message_id}/{call.call_id}"
        arguments = _arguments(call)
        paths = [arguments.get(name) for name in _PATHS]
        return acp.start_tool_call(
            shown_id,
            call.name,
            kind=next((_KINDS[word] for word in re.split("[^a-z]+", call.name.lower()) if word in _KINDS), "other"),
            status="pending",
            raw_input=arguments,
            locations=[
                schema.ToolCallLocation(path=one)
                for one in paths
                if isinstance(one, str) and PurePath(one).is_absolute()
            ],
        )


def memory_edit(block_id: BlockId, label: str, version: int, diff: str) -> Update:
    """Return the update of a block that changed, as a diff of a file that is named after it.

    Args:
        diff: unified, without file headers; the editor gets the lines that it has.
    """
    lines = [(mark, mark if mark == "…" else text) for mark, text in diff_lines(diff)]
    old, new = ("\n".join(text for mark, text in lines if mark in marks) for marks in ("- …", "+ …"))
    content = [acp.tool_diff_content(f"/memory/{label}.md", new, old)]
    shown_id, title = f"memory-{block_id}-{version}", f"Memory changed: {label}"
    return acp.start_tool_call(shown_id, title, kind="edit", status="completed", content=content)


def _chunk(say: Callable[[Any], Any], text: str, message_id: MessageId) -> Iterator[Update]:
    if text:
        chunk = say(acp.text_block(text))
        chunk.message_id = message_id
        yield chunk


def _result(shown_id: str, result: ToolResult) -> Update:
    images = [acp.image_block(image.data, image.media_type) for image in result.images]
    content = [acp.tool_content(block) for block in (acp.text_block(result.shown_text or result.text), *images)]
    return acp.update_tool_call(
        shown_id, status="completed" if result.status == "success" else "failed", content=content
    )


def _arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call; a text that is no object as the argument `text`."""
    try:
        arguments = json.loads(call.own_arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {"text": call.arguments}
