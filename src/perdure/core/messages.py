"""Messages and their parts: the log of an agent.

A message is immutable. A caller's later change is a revision row beside it (`storage.tables.messages`), so the log
stays append-only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from perdure.core.errors import InvalidInput
from perdure.core.ids import PREFIXES, AgentId, GraphId, MessageId, RunId, StepId
from perdure.core.loops import HEARTBEAT, THINKING, split_arguments
from perdure.core.sources import Source
from perdure.core.text.json_strings import compact_json, read_string
from perdure.core.text.reprs import short_repr

Role = Literal["system", "user", "assistant", "tool"]

MessageKind = Literal["message", "memory_delta", "heartbeat", "summary", "alert", "approval", "compaction", "hook"]
"""`message`: from a person or agent, or a tool's result. `approval`: a person's decisions about calls. `compaction`: a
note that messages left the view. Models never see these two. All other kinds are envelopes of the engine, listed as
history on request only. Nobody can forge them: the kind is a column, not text."""

HISTORY_KINDS: tuple[MessageKind, ...] = ("message", "approval", "compaction")
"""The kinds that histories list."""

UNSEEN_KINDS: tuple[MessageKind, ...] = ("approval", "compaction")
"""The kinds that no model sees."""

SEND_MESSAGE = "send_message"
"""The tool by which an agent with a heartbeat loop speaks."""

TRY_AGAIN = "try_again"
"""The name of a message that asks for another answer to the one of a user before it."""

ENGINE_SENDER = "perdure"
"""The sender of system messages that are envelopes of the engine, such as events. No caller may name it."""

Waits = Literal["approval", "client"]
"""Why a call waits: for a person's approval, or for the caller to run it."""

ToolStatus = Literal["success", "error"]


@dataclass(frozen=True, slots=True)
class Text:
    """What a person or the model said."""

    text: str
    type: Literal["text"] = "text"


IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The kinds of pictures that all providers with pictures take."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture, stored whole, so that a request needs no network to be built again.

    Args:
        data: its bytes in base64.
        url: where it was fetched; None: it came with the message.
        detail: how closely the model is to look: "low", "high" or "auto"; None: the provider's default.
    """

    media_type: str
    data: str
    url: str | None = None
    detail: str | None = None
    type: Literal["image"] = "image"

    @property
    def text(self) -> str:
        """A line that describes the picture, for places that take only text."""
        return f"[image, {self.media_type}, {len(self.data) * 3 // 4:,} bytes]"


@dataclass(frozen=True, slots=True)
class ImageLink:
    """A picture that a caller names by its address. It is fetched before the message is stored."""

    url: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model's reasoning before its answer; `signature` is the provider's, sent back unchanged."""

    text: str
    signature: str | None = None
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request to run a tool. `arguments` is the model's text, not yet parsed: it may be no JSON at all.

    `call_id` is unique within its run; a repeated one is renamed before it is stored. `awaits` is set when the answer
    is stored; None: the call runs at once. `tool_digest` is of the tool that a person approves; None: no approval is
    needed, or an older version stored the call. `loop_arguments` names the arguments that are the loop's, not the
    tool's, and `ignored` those that are nobody's. `refused`: it can't be run, so it says nothing to anybody.
    """

    call_id: str
    name: str
    arguments: str
    awaits: Waits | None = None
    tool_digest: str | None = field(default=None, compare=False)
    loop_arguments: tuple[str, ...] = field(default=(), compare=False)
    ignored: tuple[str, ...] = field(default=(), compare=False)
    refused: bool = field(default=False, compare=False)
    type: Literal["tool_call"] = "tool_call"

    @property
    def own_arguments(self) -> str:
        """The arguments of the tool, as JSON."""
        return split_arguments(self.arguments, (*self.loop_arguments, *self.ignored))[0]

    @property
    def speech(self) -> str:
        """What the agent says to a person by this call of `send_message`; empty for a refused or another one."""
        if self.name != SEND_MESSAGE or self.refused:
            return ""
        text = split_arguments(self.arguments, ("message",))[1].get("message")
        return text if isinstance(text, str) else ""

    @property
    def thoughts(self) -> str:
        """What the model thought before the call; empty if it did not say."""
        return (read_string(self.arguments, THINKING) or "") if THINKING in self.loop_arguments else ""

    @property
    def requests_heartbeat(self) -> bool:
        """Whether the model wants to go on after the call."""
        value = split_arguments(self.arguments, self.loop_arguments)[1].get(HEARTBEAT)
        return value is True or (isinstance(value, str) and value.strip().lower() == "true")


@dataclass(frozen=True, slots=True)
class Question:
    """An agent's question to the user; the next message answers it. `options`: suggested answers, in order."""

    text: str
    options: tuple[str, ...] = ()

    @property
    def as_text(self) -> str:
        """The question as text, with options numbered from 1."""
        numbered = [f"{number}. {option}" for number, option in enumerate(self.options, start=1)]
        return "\n\n".join(filter(None, (self.text, "\n".join(numbered))))


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """A person's decision about a pending call. `arguments` replace the model's; None: unchanged."""

    call_id: str
    approve: bool
    reason: str | None = None
    arguments: str | None = None
    type: Literal["tool_decision"] = "tool_decision"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The one result of a call. `text` is what the model sees.

    `refused`: the call was invalid (no such tool, bad arguments), so nothing ran. `question`: a question for the user;
    the run ends with it. `shown_chars`: how much of a long text the model sees, with a handle to the rest; None: all.
    `images` follow the text. `shown_text`: what the model sees in place of the text, compressed when the result was
    stored; None: the text. `whole_tokens`: an estimate of the text's tokens where the model sees something else.
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
    images: tuple[Image, ...] = ()
    shown_text: str | None = None
    whole_tokens: int | None = None
    type: Literal["tool_result"] = "tool_result"


CompactionTrigger = Literal["context_window_exceeded", "post_step_context_check", "manual", "import"]
"""Why a view is compacted: the provider refused a request as too long; the next one would be too long; a client asked
for it; imported history is too long. The first two names are Letta's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionNote:
    """Says that messages left the view behind a summary. Counts of messages are without the engine's own, but with the
    system message and one for all summaries.

    Args:
        text: the summary, which stands for the messages that left.
        hidden_messages: how many left.
        tokens_before, tokens_after: of the request's prefix and messages, estimated.
        window_tokens: what the model takes.
    """

    text: str
    trigger: CompactionTrigger
    hidden_messages: int
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int
    window_tokens: int
    type: Literal["compaction"] = "compaction"


Part = Text | Image | Reasoning | ToolCall | ToolDecision | ToolResult | CompactionNote
_PART_TYPES: dict[str, type[Part]] = {
    **{"text": Text, "image": Image, "reasoning": Reasoning, "tool_call": ToolCall},
    **{"tool_decision": ToolDecision, "tool_result": ToolResult, "compaction": CompactionNote},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message to append: without sequence number and agent.

    Args:
        sources: what untrusted content it brings from outside; None: only what its sender implies.
    """

    id: MessageId
    role: Role
    parts: tuple[Part, ...]
    kind: MessageKind = "message"
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    occurred_at: datetime | None = None
    sources: tuple[Source, ...] | None = None

    @property
    def outside_sources(self) -> tuple[Source, ...]:
        """The sources of what the message brings from outside: `sources`, else the agent or group that sent it."""
        if self.sources is not None:
            return self.sources
        sender = self.sender_id or ""
        is_agent = self.role == "user" and sender.startswith((f"{PREFIXES['agent']}-", f"{PREFIXES['group']}-"))
        return (Source("other_agent", sender),) if is_agent else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One row of an agent's log.

    `seq` is the agent's own count over all its conversations: a larger one is later, always.
    `tokens` is the upper estimate at the time of writing. `occurred_at` is the message's own time, `created_at` the
    time of storing; they differ for imported history only.
    """

    __repr__ = short_repr("id", "role", "text", "calls")

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
        """The text parts, or the results' texts, joined by line breaks."""
        return text_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls among the parts."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def decisions(self) -> tuple[ToolDecision, ...]:
        """A person's decisions among the parts."""
        return tuple([part for part in self.parts if isinstance(part, ToolDecision)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results among the parts; what a caller answered with is none before it has a row of its own."""
        return () if self.kind == "approval" else tuple([part for part in self.parts if isinstance(part, ToolResult)])


def text_of(parts: Sequence[Part]) -> str:
    """Return the text of parts in lines, without reasoning and calls but `send_message`; pictures are in brackets."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    shown = [part for part in parts if isinstance(part, (Text, Image, ToolResult, ToolCall))]
    texts = [(part.speech or None) if isinstance(part, ToolCall) else part.text for part in shown]
    return "\n".join(text for text in texts if text is not None)


def text_without_images(parts: Sequence[Part]) -> str:
    """Return `text_of` these parts without the lines that describe pictures, as searches need it."""
    return text_of([part for part in parts if not isinstance(part, Image)])


def user_texts(rows: Sequence[Draft | Message]) -> list[str]:
    """Return the text of each message of a user among `rows`, in order, without pictures."""
    return [text_without_images(row.parts) for row in rows if row.role == "user" and row.kind == "message"]


def images_of(parts: Sequence[Part]) -> tuple[Image, ...]:
    """Return the pictures among these parts, those of results too."""
    found: list[Image] = []
    for part in parts:
        if isinstance(part, Image):
            found.append(part)
        elif isinstance(part, ToolResult):
            found += part.images
    return tuple(found)


def is_embedded(message: Message) -> bool:
    """Return whether the message gets a vector: messages of people and agents do."""
    return message.kind == "message" and message.role in ("user", "assistant") and bool(message.text.strip())


def text_of_json(parts: str) -> str:
    """Return `text_of` the parts in JSON of `parts_to_json`, for speed without parsing the usual one plain text."""
    body = parts[len(_TEXT_FORM[0]) : -len(_TEXT_FORM[1])]
    if parts.startswith(_TEXT_FORM[0]) and '"' not in body and "\\" not in body:
        return body
    return text_of(parts_from_json(parts))


def parts_to_json(parts: Sequence[Part]) -> str:
    """Return compact JSON of parts, `type` first, then the fields in order, without absent ones."""
    shapes: list[dict[str, Any]] = []
    for part in parts:
        shape: dict[str, Any] = {"type": part.type}
        for name in part.__slots__:
            value = getattr(part, name)
            if value is not None and value != () and (name, value) != ("refused", False):
                if isinstance(value, Question):
                    value = asdict(value)
                elif isinstance(value, tuple) and isinstance(value[0], Image):
                    value = [asdict(image) for image in value]
                shape[name] = value
        shapes.append(shape)
    return compact_json(shapes)


def parts_from_json(text: str) -> tuple[Part, ...]:
    """Parse the JSON of `parts_to_json`. Raises: ValueError: for a part of an unknown type."""
    return tuple([_part_of(**shape) for shape in json.loads(text)])


def _part_of(type: str, **fields: Any) -> Part:
    """Return the part of this type; `fields` are its fields as JSON holds them. Raises: ValueError: unknown type."""
    if type not in _PART_TYPES:
        raise ValueError(f"unknown message part {type!r}")
    for name in fields.keys() & {"stdout", "stderr", "loop_arguments", "ignored"}:
        fields[name] = tuple(fields[name])
    if "images" in fields:
        fields["images"] = tuple(Image(**image) for image in fields["images"])
    if "question" in fields:
        fields["question"] = Question(fields["question"]["text"], tuple(fields["question"]["options"]))
    return _PART_TYPES[type](**fields)


_TEXT_FORM = parts_to_json([Text("|")]).split("|")


def check_same_calls(before: Message, parts: Sequence[Part] | None) -> None:
    """Check that `parts`, a revision, has the calls and results of `before`, as models need. Raises: InvalidInput."""

    def calls_and_results(parts: Sequence[Part]) -> list[tuple[str, str]]:
        """Return the type and id of each call and result among the parts."""
        return [(part.type, part.call_id) for part in parts if isinstance(part, (ToolCall, ToolResult))]

    if calls_and_results(before.parts) != calls_and_results(parts or ()):
        raise InvalidInput(f"{before.id} holds tool calls or results, which a revision can't remove, add or rename")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Selects messages, for which all conditions must hold. Times are of `occurred_at`, both ends included."""

    conversation_seq: int | None = None
    roles: tuple[Role, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    before_seq: int | None = None


@dataclass(frozen=True, slots=True)
class MessageScope:
    """What a search of an agent's messages begins with. Only `scopes` makes one, of agents of its organisation.

    Args:
        number: of the agent, in the full-text index.
        words_seq: the first message whose words the index does not have yet.
        next_seq: the number of the agent's next message.
        count: how many messages it has.
        is_resetting: whether a reset is being carried out.
        graph_id: the graph of its facts; None: it has none.
        waiting: (number, text for the index) of the messages that the index does not have yet, the newest first.
    """

    number: int
    words_seq: int
    next_seq: int
    count: int
    is_resetting: bool
    graph_id: GraphId | None
    waiting: list[tuple[int, str]] = field(default_factory=list)


TURN_FORMAT = "<qdiihb?"
"""A message without its text, as `struct` packs it: its number, `occurred_at` in epoch seconds, conversation, length,
speaker (place among the names, -1: none), 0 for a person and 1 for an agent, and whether it asks something."""


@dataclass(frozen=True, slots=True)
class TurnPart:
    """Some messages of a history without their texts: names of speakers, and rows in `TURN_FORMAT`."""

    names: tuple[str, ...]
    rows: bytes


def unlogged_message(role: Role, text: str) -> Message:
    """Return a message that is in no log, for a request to a model that is no turn of a conversation."""
    return Message(
        id=MessageId("message-00000000-0000-4000-8000-000000000000"),
        agent_id=AgentId("agent-00000000-0000-4000-8000-000000000000"),
        seq=0,
        conversation_seq=0,
        role=role,
        parts=(Text(text),),
        created_at=_EPOCH,
        occurred_at=_EPOCH,
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
