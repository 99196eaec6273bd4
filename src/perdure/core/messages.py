"""Messages and their parts: the log of an agent.

A message is immutable. What a caller later patches or removes is a revision row beside it
(`storage.tables.messages`), so the log stays append-only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, MessageId, RunId, StepId
from perdure.core.text.json_encoder import compact_json, json_text

__all__ = [
    "Draft",
    "Message",
    "MessageFilter",
    "MessageKind",
    "Part",
    "Question",
    "Reasoning",
    "Role",
    "Text",
    "ToolCall",
    "ToolDecision",
    "ToolResult",
    "ToolStatus",
    "Turn",
    "Waits",
    "check_calls_kept",
    "is_embedded",
    "parts_from_json",
    "parts_to_json",
    "text_of",
    "text_of_json",
]

Role = Literal["system", "user", "assistant", "tool"]

MessageKind = Literal["message", "memory_delta", "heartbeat", "summary", "alert", "approval", "hook"]
"""`message` was said by somebody or is a tool's result; `approval` is what a person decided about calls, and is never
shown to a model. Every other kind was added by the engine: JSON envelopes, not listed as history unless asked for, and
nobody can forge them: the kind is a column, not text."""

Waits = Literal["approval", "client"]
"""What a call waits for before it has a result: that a person approves it, or that the caller runs it."""

ToolStatus = Literal["success", "error"]


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What a model thought before it spoke; `signature` is the provider's, sent back unchanged."""

    text: str
    signature: str | None = None
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request to run a tool. `arguments` is the model's text, not yet parsed: it may be no JSON at all.

    `call_id` is unique within its run; a repeated one is renamed before it is stored. `awaits` is decided when the
    answer is stored; None: the call is run at once. `tool_digest` tells what a person is asked about: the tool as it
    was then; None: nobody is asked, or the call is older than this.
    """

    call_id: str
    name: str
    arguments: str
    awaits: Waits | None = None
    tool_digest: str | None = field(default=None, compare=False)
    type: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True)
class Question:
    """What an agent asks the user; the next message is the answer. `options` are what it suggests, in order."""

    text: str
    options: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The question as a person reads it, the options numbered from 1."""
        numbered = [f"{number}. {option}" for number, option in enumerate(self.options, start=1)]
        return "\n\n".join(filter(None, (self.text, "\n".join(numbered))))


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """What a person decided about a call that waited for it. `arguments` are what it is run with in place of the
    model's; None: as they are."""

    call_id: str
    approve: bool
    reason: str | None = None
    arguments: str | None = None
    type: Literal["tool_decision"] = "tool_decision"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The one result of a call. `text` is what the model sees.

    `refused`: the call itself was at fault (no such tool, arguments that can't be used), so nothing was run.
    `question`: what the user is asked; the run ends with it. `shown_chars`: how much of a long text the model is shown,
    with a handle to the rest; None: all of it.
    """

    call_id: str
    name: str
    text: str
    status: ToolStatus = "success"
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    refused: bool = False
    question: Question | None = None
    shown_chars: int | None = None
    type: Literal["tool_result"] = "tool_result"


Part = Text | Reasoning | ToolCall | ToolDecision | ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message before it has its place: no sequence number, no agent yet."""

    id: MessageId
    role: Role
    parts: tuple[Part, ...]
    kind: MessageKind = "message"
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One row of an agent's log.

    `seq` is the agent's own count over all its conversations: a larger one is later, always.
    `tokens` is the upper estimate made when the row was written. `occurred_at` is when it was
    said, `created_at` when it was stored; they differ for imported history only.
    """

    id: MessageId
    agent_id: AgentId
    seq: int
    conversation_seq: int
    role: Role
    parts: tuple[Part, ...]
    kind: MessageKind = "message"
    run_seq: int | None = None
    run_id: RunId | None = None
    step_id: StepId | None = None
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    tokens: int = 0
    created_at: datetime
    occurred_at: datetime
    revision: int = 0

    @property
    def text(self) -> str:
        """What was said: the text parts, or the results' texts, joined by line breaks."""
        return text_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def decisions(self) -> tuple[ToolDecision, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolDecision)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolResult)])


def text_of(parts: Sequence[Part]) -> str:
    """The text a person would read in these parts, without reasoning and calls."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return "\n".join(part.text for part in parts if isinstance(part, (Text, ToolResult)))


def is_embedded(message: Message) -> bool:
    """Whether the message is found by meaning too: what people and agents said to each other."""
    return message.kind == "message" and message.role in ("user", "assistant") and bool(message.text.strip())


def text_of_json(parts: str) -> str:
    """`text_of` what `parts_to_json` wrote, without making the parts of the usual message, which is one text."""
    body = parts[len(_TEXT_FORM[0]) : -len(_TEXT_FORM[1])]
    if parts.startswith(_TEXT_FORM[0]) and '"' not in body and "\\" not in body:
        return body
    return text_of(parts_from_json(parts))


def parts_to_json(parts: Sequence[Part]) -> str:
    """Compact JSON of parts, fields in a fixed order, absent ones left out; the inverse of `parts_from_json`."""
    if len(parts) == 1 and isinstance(parts[0], Text):  # most messages; written so in a third of the time
        return f'[{{"type":"text","text":{json_text(parts[0].text)}}}]'
    return compact_json([_part_to_dict(part) for part in parts])


def parts_from_json(text: str) -> tuple[Part, ...]:
    """Parts from what `parts_to_json` wrote.

    Raises: ValueError: for a part of an unknown type.
    """
    return tuple(map(_part_from_dict, json.loads(text)))


def _part_to_dict(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Reasoning(text=text, signature=signature):
            return {"type": "reasoning", "text": text} | ({"signature": signature} if signature is not None else {})
        case ToolCall():
            called = {"type": "tool_call", "call_id": part.call_id, "name": part.name, "arguments": part.arguments}
            if part.awaits is not None:
                called["awaits"] = part.awaits
            if part.tool_digest is not None:
                called["tool_digest"] = part.tool_digest
            return called
        case ToolDecision():
            said: dict[str, Any] = {"type": "tool_decision", "call_id": part.call_id, "approve": part.approve}
            for name in ("reason", "arguments"):
                if (value := getattr(part, name)) is not None:
                    said[name] = value
            return said
        case ToolResult():
            shape: dict[str, Any] = {
                "type": "tool_result",
                "call_id": part.call_id,
                "name": part.name,
                "text": part.text,
                "status": part.status,
            }
            if part.stdout:
                shape["stdout"] = list(part.stdout)
            if part.stderr:
                shape["stderr"] = list(part.stderr)
            if part.refused:
                shape["refused"] = True
            if part.question is not None:
                shape["question"] = {"text": part.question.text, "options": list(part.question.options)}
            if part.shown_chars is not None:
                shape["shown_chars"] = part.shown_chars
            return shape


def _part_from_dict(shape: dict[str, Any]) -> Part:
    match shape["type"]:
        case "text":
            return Text(shape["text"])
        case "reasoning":
            return Reasoning(shape["text"], shape.get("signature"))
        case "tool_call":
            return ToolCall(
                shape["call_id"], shape["name"], shape["arguments"], shape.get("awaits"), shape.get("tool_digest")
            )
        case "tool_decision":
            return ToolDecision(shape["call_id"], shape["approve"], shape.get("reason"), shape.get("arguments"))
        case "tool_result":
            return ToolResult(
                shape["call_id"],
                shape["name"],
                shape["text"],
                shape["status"],
                tuple(shape.get("stdout", ())),
                tuple(shape.get("stderr", ())),
                shape.get("refused", False),
                _question(shape.get("question")),
                shape.get("shown_chars"),
            )
        case other:
            raise ValueError(f"unknown message part {other!r}")


def _question(shape: dict[str, Any] | None) -> Question | None:
    return None if shape is None else Question(shape["text"], tuple(shape["options"]))


_TEXT_FORM = parts_to_json([Text("|")]).split("|")


def check_calls_kept(before: Message, parts: Sequence[Part] | None) -> None:
    """A revision may change what was said, not tear calls from results: no later request could be made of that.

    Raises: InvalidInput.
    """

    def ends(parts: Sequence[Part]) -> list[tuple[str, str]]:
        return [(part.type, part.call_id) for part in parts if isinstance(part, (ToolCall, ToolResult))]

    if ends(before.parts) != ends(parts or ()):
        raise InvalidInput(f"{before.id} holds tool calls or results, which a revision can't remove, add or rename")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Which messages: all conditions hold. Times are of `occurred_at`, both ends included."""

    conversation_seq: int | None = None
    roles: tuple[Role, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    before_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What is known of something that was said, without its words: `occurred_at` in epoch seconds; `asks`: whether it
    holds a question."""

    seq: int
    conversation_seq: int
    role: Role
    name: str | None
    occurred_at: float
    chars: int
    asks: bool
