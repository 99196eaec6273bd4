"""Messages as the wire shows them: one stored message becomes one or more of its typed ones.

They share the stored message's `id`; their `otid`s differ in the last bits. Everything here makes plain dicts, because
it runs for every message of every answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.core.ids import MessageId
from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.core.tools.arguments import ARGUMENTS

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

SEND_MESSAGE = "send_message"

GroupKind = Literal["reasoning", "text", "calls", "waiting", "said"]


@dataclass(frozen=True, slots=True)
class Shown:
    """How messages are shown: `types` are the only ones, if it is given; calls of the tool `tool_name` are shown as
    what they say, their argument `tool_argument`, and their returns not at all."""

    types: frozenset[str] | None = None
    use_assistant_message: bool = True
    tool_name: str = SEND_MESSAGE
    tool_argument: str = "message"

    def has(self, message_type: str) -> bool:
        return self.types is None or message_type in self.types

    def said(self, call: ToolCall) -> str | None:
        """What a call says; None if it is to be shown as the call it is."""
        if not self.use_assistant_message or call.name != self.tool_name:
            return None
        try:
            said = parse_json(call.arguments, ARGUMENTS)[self.tool_argument]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return said if isinstance(said, str) else None


@dataclass(frozen=True, slots=True)
class Group:
    """Parts of one stored message that make one wire message.

    `index` numbers them within the message, for the `otid`. `slot` does so for `seq_id`: a call has a number of its
    own, because in token mode each is a chunk.
    """

    kind: GroupKind
    index: int
    slot: int
    parts: tuple[Part, ...]
    said: str = ""

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, (Text, Reasoning)))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def groups_of(message: Message, shown: Shown) -> list[Group]:
    """What a model said, by kind, each kind where it began: reasoning, text, calls; what it said by a tool; and last
    the calls that wait."""
    kinds: dict[GroupKind, list[Part]] = {}
    said: list[tuple[ToolCall, str]] = []
    for part in message.parts:
        match part:
            case Text():
                kinds.setdefault("text", []).append(part)
            case Reasoning():
                kinds.setdefault("reasoning", []).append(part)
            case ToolCall():
                if (text := shown.said(part)) is not None:
                    said.append((part, text))
                else:
                    kinds.setdefault("calls" if part.awaits is None else "waiting", []).append(part)
            case _:
                pass
    waiting = kinds.pop("waiting", None)
    found: list[tuple[GroupKind, list[Part], str]] = [(kind, parts, "") for kind, parts in kinds.items()]
    found += [("said", [call], text) for call, text in said]
    if waiting is not None:  # what the run stops at comes last
        found.append(("waiting", waiting, ""))
    groups: list[Group] = []
    slot = 0
    for kind, parts, text in found:
        groups.append(Group(kind, len(groups), slot, tuple(parts), text))
        slot += len(parts) if kind in ("calls", "waiting") else 1
    return groups


def slots_of(message: Message) -> int:
    """How many numbers a message takes up in a stream, however it is shown."""
    if message.role != "assistant":
        return 1
    texts = {part.type for part in message.parts if isinstance(part, (Text, Reasoning))}
    return max(1, len(texts) + len(message.calls))


def wire_messages(message: Message, shown: Shown, *, seq: int | None = None) -> list[dict[str, Any]]:
    """The wire messages of a stored one, in order; none if it is hidden or of a type that is not asked for.

    `seq` is the number of the first in its stream.
    """
    if message.kind == "approval":
        return [_approval_response(message, seq)] if shown.has("approval_response_message") else []
    match message.role:
        case "assistant":
            shapes = (_of_group(message, group, seq) for group in groups_of(message, shown))
            return [shape for shape in shapes if shown.has(shape["message_type"])]
        case "tool":
            if not shown.has("tool_return_message") or _is_hidden(message.results, shown):
                return []
            return [_tool_return(message, seq)] if message.results else []
        case "user" | "system" as role:
            message_type = f"{role}_message"
            if not shown.has(message_type):
                return []
            return [common(message, message_type, 0, seq) | {"content": _content(message.parts)}]


def _of_group(message: Message, group: Group, seq: int | None) -> dict[str, Any]:
    number = None if seq is None else seq + group.slot
    match group.kind:
        case "reasoning":
            last = group.parts[-1]
            return common(message, "reasoning_message", group.index, number) | {
                "source": "reasoner_model",
                "reasoning": group.text,
                "signature": last.signature if isinstance(last, Reasoning) else None,
            }
        case "calls" | "waiting":
            message_type = "tool_call_message" if group.kind == "calls" else "approval_request_message"
            calls = [
                {"name": call.name, "arguments": call.arguments, "tool_call_id": call.call_id} for call in group.calls
            ]
            return common(message, message_type, group.index, number) | {
                "tool_call": calls[0],
                "tool_calls": calls,
            }
        case "text":
            return common(message, "assistant_message", group.index, number) | {"content": group.text}
        case "said":
            return common(message, "assistant_message", group.index, number) | {"content": group.said}


def _shown(result: ToolResult) -> str:
    """A result up to its tool's limit, as Letta's server shows it; all of it stands in the log."""
    limit, size = result.shown_chars, len(result.text)
    if limit is None:
        return result.text
    note = f"function output was truncated since it exceeded the character limit ({size} > {limit})"
    return f"{result.text[:limit]}… [NOTE: {note}]"


def _approval_response(message: Message, seq: int | None) -> dict[str, Any]:
    approvals = [
        {"type": "approval", "tool_call_id": one.call_id, "approve": one.approve, "reason": one.reason}
        | ({} if one.arguments is None else {"arguments": one.arguments})
        for one in message.decisions
    ]
    first = message.decisions[0]
    return common(message, "approval_response_message", 0, seq) | {
        "approvals": approvals,
        "approve": first.approve,
        "approval_request_id": first.call_id,
        "reason": first.reason,
    }


def _tool_return(message: Message, seq: int | None) -> dict[str, Any]:
    returns = [
        {
            "type": "tool",
            "tool_return": _shown(result),
            "status": result.status,
            "tool_call_id": result.call_id,
            "stdout": list(result.stdout),
            "stderr": list(result.stderr),
        }
        for result in message.results
    ]
    first = {name: value for name, value in returns[0].items() if name != "type"}
    shape = common(message, "tool_return_message", 0, seq) | first | {"tool_returns": returns}
    shape["name"] = message.name or message.results[0].name
    return shape


def _is_hidden(results: Sequence[ToolResult], shown: Shown) -> bool:
    """What says nothing: that a message was sent. That it was not is shown."""
    return shown.use_assistant_message and all(
        result.name == shown.tool_name and result.status == "success" for result in results
    )


def _content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    texts = [part.text for part in parts if isinstance(part, Text)]
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]


def common(message: Message, message_type: str, index: int, seq: int | None) -> dict[str, Any]:
    """The fields that every message has, in the wire's order. Input keeps the `otid` it came with."""
    return {
        "id": message.id,
        "date": second(message.occurred_at),
        "name": message.name,
        "message_type": message_type,
        "otid": message.otid or otid(message.id, index),
        "sender_id": message.sender_id,
        "step_id": message.step_id,
        "is_err": None,
        "seq_id": seq,
        "run_id": message.run_id,
    }


def otid(message_id: MessageId, index: int) -> str:
    """The message's UUID, its last seven bits replaced by the number of the wire message."""
    uuid = message_id.partition("-")[2]
    return f"{uuid[:-2]}{(int(uuid[-2:], 16) & 0x80) | (index & 0x7F):02x}"


def second(at: datetime) -> str:
    """A message's date: UTC, to the second, with `+00:00`."""
    return at.isoformat(timespec="seconds")
