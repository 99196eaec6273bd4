"""Messages on the wire: one stored message becomes one or more typed ones.

They share the stored message's `id`; their `otid`s differ in the last bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.core.ids import MessageId
from perdure.core.loops import THINKING, split_arguments, with_text_argument
from perdure.core.messages import (
    SEND_MESSAGE,
    CompactionNote,
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from perdure.core.text.json_strings import read_string
from perdure.core.text.reprs import attributes
from perdure.server.wire.shapes import Object, WireShape, computed

MessageType = Literal[
    "system_message",
    "user_message",
    "assistant_message",
    "reasoning_message",
    "hidden_reasoning_message",
    "tool_call_message",
    "tool_return_message",
    "approval_request_message",
    "approval_response_message",
    "summary_message",
    "event_message",
]

_WITHOUT_VALUE = frozenset(
    {"archival_memory_insert", "finish_rethinking_memory", "memory_finish_edits", "store_memories"}
)
_SEARCHES = frozenset({"archival_memory_search", "conversation_search", "search_memory"})

GroupKind = Literal["reasoning", "text", "calls", "waiting", "speech"]

GroupKey = tuple[GroupKind, str]
"""A group within its message; of a message that a tool sent with the id of the call, else with an empty text."""

GROUP_TYPES: dict[GroupKind, MessageType] = {
    "reasoning": "reasoning_message",
    "text": "assistant_message",
    "speech": "assistant_message",
    "calls": "tool_call_message",
    "waiting": "approval_request_message",
}

FIRST_FIELDS: dict[str, Any] = dict.fromkeys(
    ("id", "date", "name", "message_type", "otid", "sender_id", "step_id", "is_err", "seq_id", "run_id")
)
"""The fields that every wire message and chunk begins with, in the wire's order."""

CALL_NUMBERS = 2
"""How many numbers (`seq_id`) a call takes in a stream: one for its name, one for its arguments."""


@dataclass(frozen=True, slots=True)
class Display:
    """Which messages a client gets, and in which form.

    Args:
        types: only messages of these types; None: all.
        use_assistant_message: calls of the tool `tool_name` are displayed as messages with the text of their argument
            `tool_argument`, and their results not at all.
        compactions: replies and streams say that messages left the view. Lists always do: with this in messages of
            their own types, else in the form in which Letta shows it to a model.
    """

    types: frozenset[str] | None = None
    use_assistant_message: bool = True
    tool_name: str = SEND_MESSAGE
    tool_argument: str = "message"
    compactions: bool = False

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Display:
        """Return the display that a run was started with."""
        types = form.get("include_return_message_types")
        return cls(
            None if types is None else frozenset(types),
            form.get("use_assistant_message", True),
            form.get("assistant_message_tool_name", SEND_MESSAGE),
            form.get("assistant_message_tool_kwarg", "message"),
            form.get("include_compaction_messages", False),
        )

    def is_in_reply(self, message: Message) -> bool:
        """Whether replies and streams hold the message: not what the caller or the engine says, but for compactions."""
        if message.kind == "compaction":
            return self.compactions
        return message.step_id is not None and message.kind == "message"

    def includes(self, message_type: str) -> bool:
        """Whether the client gets messages of this type."""
        return self.types is None or message_type in self.types

    def speech(self, call: ToolCall) -> str | None:
        """The text of a call that is displayed as a message; None: it is displayed as a call. One whose arguments
        break off, so that it can't be run, is displayed as both: streams have shown its text."""
        if call.awaits is not None or not self.speaks_by(call.name):
            return None
        text = read_string(with_text_argument(call.arguments, self.tool_argument), self.tool_argument)
        if not call.refused:
            return text
        is_whole = self.tool_argument in split_arguments(call.arguments, (self.tool_argument,))[1]
        return None if is_whole else text or None

    def speaks_by(self, tool_name: str) -> bool:
        """Whether calls of this tool are displayed as messages."""
        return self.use_assistant_message and tool_name == self.tool_name

    def previews(self, tool_name: str, loop_arguments: Sequence[str], refused: bool) -> bool:
        """Whether a stream shows a call's pieces as they come; not if they hold thoughts, which the client won't
        get."""
        return (refused or not self.speaks_by(tool_name)) and THINKING not in loop_arguments

    def results(self, message: Message) -> Sequence[ToolResult]:
        """The results of a tool's message, without those that only say that a message was sent."""
        sent = self.tool_name if self.use_assistant_message else None
        return [result for result in message.results if result.name != sent or result.status != "success"]


@dataclass(frozen=True, slots=True)
class PartGroup:
    """Parts of one stored message that make one wire message.

    Args:
        index: the number of the group within the message, for the `otid`.
        offset: the same for `seq_id`: each call has numbers of its own, because in token mode its pieces are chunks.
        speech: the text of a call that is displayed as a message.
    """

    kind: GroupKind
    index: int
    offset: int
    parts: tuple[Part, ...]
    speech: str = ""

    @property
    def key(self) -> GroupKey:
        """The group within its message."""
        return self.kind, self.calls[0].call_id if self.kind == "speech" else ""

    @property
    def type(self) -> MessageType:
        """The type of the wire message."""
        return GROUP_TYPES[self.kind]

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.speech or "\n".join(part.text for part in self.parts if isinstance(part, (Text, Reasoning)))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the message."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def groups_of(message: Message, display: Display) -> list[PartGroup]:
    """The groups of a model's answer: reasoning, text, calls and each message that a tool sent, in the order in which
    each begins in a stream; then what a stream shows when it is whole; last the calls that wait for approval. Thoughts
    in a call are reasoning."""
    kinds: dict[GroupKey, tuple[list[Part], str]] = {}
    late: list[tuple[ToolCall, str]] = []
    calls: list[Part] = []
    waiting: list[Part] = []
    held = False
    for part in message.parts:
        if isinstance(part, ToolCall) and part.thoughts:
            kinds.setdefault(("reasoning", ""), ([], ""))[0].append(Reasoning(part.thoughts))
        if isinstance(part, ToolCall) and (text := display.speech(part)) is not None:
            if held:
                late.append((part, text))
            else:
                kinds["speech", part.call_id] = ([part], text)
            if part.refused:
                calls.append(part)
        elif isinstance(part, ToolCall):
            held = held or part.awaits is not None
            (calls if part.awaits is None else waiting).append(part)
            if not held and display.previews(part.name, part.loop_arguments, part.refused):
                kinds.setdefault(("calls", ""), (calls, ""))
        elif isinstance(part, (Text, Reasoning)):
            kinds.setdefault(("text" if isinstance(part, Text) else "reasoning", ""), ([], ""))[0].append(part)
    if calls:
        kinds.setdefault(("calls", ""), (calls, ""))
    ordered: list[tuple[GroupKind, list[Part], str]] = [(kind, *group) for (kind, _), group in kinds.items()]
    ordered += [("speech", [call], text) for call, text in late]
    if waiting:
        ordered.append(("waiting", waiting, ""))
    groups: list[PartGroup] = []
    offset = 0
    for kind, parts, text in ordered:
        groups.append(PartGroup(kind, len(groups), offset, tuple(parts), text))
        offset += len(parts) * CALL_NUMBERS if kind in ("calls", "waiting") else 1
    return groups


def count_numbers(message: Message) -> int:
    """How many numbers (`seq_id`) a message takes in a stream, however it is displayed."""
    if message.role != "assistant":
        return 2 if message.kind == "compaction" else 1
    texts = {part.type for part in message.parts if isinstance(part, (Text, Reasoning))}
    texts |= {"reasoning" for call in message.calls if call.thoughts}
    return max(1, len(texts) + len(message.calls) * CALL_NUMBERS + sum(call.refused for call in message.calls))


def wire_messages(message: Message, display: Display, *, seq: int | None = None) -> list[dict[str, Any]]:
    """The wire messages of a stored message, in order; none if the client does not get its type.

    `seq` is the number of the first in its stream.
    """
    if message.kind == "approval":
        shapes = [_approval_response(message, seq)]
    elif message.kind == "compaction":
        shapes = _compaction_messages(message, display, seq)
    elif message.role == "assistant":
        shapes = [_group_shape(message, group, seq) for group in groups_of(message, display)]
    elif message.role == "tool":
        results = display.results(message)
        shapes = [_tool_return(message, results, seq)] if results else []
    else:
        shapes = [common_fields(message, f"{message.role}_message", 0, seq) | {"content": content_shape(message.parts)}]
    return [shape for shape in shapes if display.includes(shape["message_type"])]


def _compaction_messages(message: Message, display: Display, seq: int | None) -> list[dict[str, Any]]:
    """The wire messages that say that messages left the view: an event, then the summary; or one of a user."""
    [note] = [part for part in message.parts if isinstance(part, CompactionNote)]
    counts = {"messages_count_before": "messages_before", "messages_count_after": "messages_after"}
    tokens = {"context_tokens_before": "tokens_before", "context_tokens_after": "tokens_after"}
    stats = attributes(note, "trigger", **tokens, context_window="window_tokens", **counts)
    if not display.compactions:
        alert = {
            "type": "system_alert",
            "message": f"Note: {note.hidden_messages} messages from the beginning of the conversation have been hidden"
            " from view due to memory constraints.\nThe following is a summary of the previous messages:\n"
            f"{note.text}",
            "time": f"{message.occurred_at:%Y-%m-%d %I:%M:%S %p UTC+0000}",
            "compaction_stats": stats,
        }
        text = json.dumps(alert, ensure_ascii=False)
        return [common_fields(message, "user_message", 0, seq) | {"content": text}]
    event = common_fields(message, "event_message", 0, seq) | {"event_type": "compaction", "event_data": stats}
    summary = common_fields(message, "summary_message", 1, None if seq is None else seq + 1)
    return [event, summary | {"summary": note.text, "compaction_stats": stats}]


def _group_shape(message: Message, group: PartGroup, seq: int | None) -> dict[str, Any]:
    """The wire message for one group of a message's parts."""
    shape = common_fields(message, group.type, group.index, None if seq is None else seq + group.offset)
    if group.kind == "reasoning":
        last = group.parts[-1]
        return shape | reasoning_fields(group.text, last.signature if isinstance(last, Reasoning) else None)
    if group.kind in ("text", "speech"):
        return shape | {"content": group.text}
    calls = [call_shape(call) for call in group.calls]
    return shape | {"tool_call": calls[0], "tool_calls": calls}


def call_shape(call: ToolCall) -> dict[str, str]:
    """Return a call's fields, without thoughts, a message of their own. A caller's tool gets its own arguments."""
    if call.awaits == "client":
        arguments = call.own_arguments
    else:
        arguments, _ = split_arguments(call.arguments, [one for one in call.loop_arguments if one == THINKING])
    return {"name": call.name, "arguments": arguments, "tool_call_id": call.call_id}


def _approval_response(message: Message, seq: int | None) -> dict[str, Any]:
    """The wire message for a message that holds answers to calls."""
    approvals = [
        {"type": "approval", "tool_call_id": decision.call_id, "approve": decision.approve, "reason": decision.reason}
        | ({} if decision.arguments is None else {"arguments": decision.arguments})
        for decision in message.decisions
    ]
    approvals += [WireToolReturn.make(part) for part in message.parts if isinstance(part, ToolResult)]
    first = approvals[0]
    return common_fields(message, "approval_response_message", 0, seq) | {
        "approvals": approvals,
        "approve": first.get("approve"),
        "approval_request_id": first["tool_call_id"],
        "reason": first.get("reason"),
    }


def _tool_return(message: Message, results: Sequence[ToolResult], seq: int | None) -> dict[str, Any]:
    """The wire message for tool results, at least one; its older fields are those of the first."""
    returns = [WireToolReturn.make(result) for result in results]
    first = {name: value for name, value in returns[0].items() if name != "type"}
    for shape_of_one, result in zip(returns, results, strict=True):
        if result.images:  # the older field of the whole message holds only text
            texts = [{"type": "text", "text": shape_of_one["tool_return"]}] if result.text else []
            shape_of_one["tool_return"] = [*texts, *map(image_shape, result.images)]
    shape = common_fields(message, "tool_return_message", 0, seq) | first | {"tool_returns": returns}
    return shape | {"name": results[0].name}


class WireToolReturn(
    WireShape, of=ToolResult, fields="type tool_return status tool_call_id stdout stderr", tool_call_id="call_id"
):
    """One tool result."""

    type: Literal["tool"] = "tool"
    tool_return: str | list[Object] = computed(lambda result: _return_text(result))


def _return_text(result: ToolResult) -> str:
    """A result's text as Letta's server shows it, up to its tool's limit; the log has all of it.

    Of its own tools, those without a value return `None`, and searches return their rows as Python writes them.
    """
    if result.name in _WITHOUT_VALUE and result.status == "success":
        return "None"
    limit, size = result.shown_chars, len(result.text)
    if limit is None:
        return _python_text(result.text) if result.name in _SEARCHES else result.text
    note = f"function output was truncated since it exceeded the character limit ({size} > {limit})"
    return f"{result.text[:limit]}… [NOTE: {note}]"


def _python_text(text: str) -> str:
    """A text of JSON as Python writes its value; any other text as it is."""
    try:
        return repr(json.loads(text))
    except (ValueError, RecursionError):
        return text


def content_shape(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    """The text of a message, or its texts and pictures if there are several parts."""
    shown = [part for part in parts if isinstance(part, Text | Image)]
    if len(shown) == 1 and isinstance(shown[0], Text):
        return shown[0].text
    return [image_shape(part) if isinstance(part, Image) else {"type": "text", "text": part.text} for part in shown]


def image_shape(image: Image) -> dict[str, Any]:
    """A picture as it was sent: by its address, or by its bytes."""
    if image.url is not None:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    source = {"type": "base64", "media_type": image.media_type, "data": image.data, "detail": image.detail}
    return {"type": "image", "source": source}


def reasoning_fields(text: str, signature: str | None = None) -> dict[str, Any]:
    """The fields of a reasoning message besides the common ones."""
    return {"source": "reasoner_model", "reasoning": text, "signature": signature}


def common_fields(message: Message, message_type: str, index: int, seq: int | None) -> dict[str, Any]:
    """Return the fields of every wire message. Input keeps its client's `otid`; an approval request the whole id."""
    own = message.id if message_type == "approval_request_message" else otid(message.id, index)
    return FIRST_FIELDS | {
        "id": message.id,
        "date": second(message.occurred_at),
        "name": message.name,
        "message_type": message_type,
        "otid": message.otid or (None if message.kind == "approval" else own),
        "sender_id": message.sender_id,
        "step_id": message.step_id,
        "seq_id": seq,
        "run_id": message.run_id,
    }


def otid(message_id: MessageId, index: int) -> str:
    """The message's UUID, its last seven bits replaced by the number of the wire message."""
    uuid = message_id.partition("-")[2]
    return f"{uuid[:-2]}{(int(uuid[-2:], 16) & 0x80) | (index & 0x7F):02x}"


def second(at: datetime) -> str:
    """Return a message's date as text: in UTC, to the second, with `+00:00`."""
    return at.isoformat(timespec="seconds")
