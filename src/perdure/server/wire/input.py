"""Messages from clients: the body of `POST .../messages` and what a run takes of it; calls that wait for a decision or
for the client, and the client's answers to them; and other bodies about runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema
from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId
from perdure.core.incoming.principals import LIMIT_MAX
from perdure.core.messages import SEND_MESSAGE, Image, ImageLink, Text, ToolDecision
from perdure.core.runs import Callback, IfBusy, RunOptions
from perdure.core.text.json_strings import json_object
from perdure.core.tools.answers import Answer, ToolReturn
from perdure.domain.conversations.importing import KEY_MAX_CHARS, NAME_MAX_CHARS, ImportedMessage
from perdure.engine.approvals.answers import SKILL, WaitingCalls
from perdure.engine.conversations.edit import EditedPart
from perdure.engine.records.rows import OTID_KEY
from perdure.engine.records.run_request import MAX_STEPS, NewMessage, RunRequest
from perdure.library.messages.client_tools import client_tools_of
from perdure.server.wire.base import Content, Part, WireRequest, join_texts, parse_parts, parse_return
from perdure.server.wire.fields import (
    FILLED,
    AgentIdIn,
    ConversationOrDefault,
    Filled,
    Items,
    MaxItems,
    Name,
    RunIdIn,
    keywords,
)
from perdure.server.wire.messages import Display, MessageType, wire_messages

ANSWER_FIELDS = ("approvals", "tool_returns", "approve")


class CallAnswerIn(WireRequest):
    """An answer to a call: a decision, or a client tool's result. `arguments` replace the model's."""

    type: Literal["approval", "tool", "tool_return"] | None = None
    tool_call_id: Name
    approve: bool | None = None
    reason: str | None = None
    arguments: str | dict[str, Any] | None = None
    tool_return: str | Items[Part] | None = None
    status: Literal["success", "error"] = "success"
    stdout: Items[str] | None = None
    stderr: Items[str] | None = None

    def answer(self, where: str) -> Answer:
        """The answer, as a run stores it. `where`: the place of its message. Raises: InvalidInput, NotSupported."""
        name = f"{where}: the answer to call {self.tool_call_id!r:.80}"
        if self.tool_return is not None and (self.approve is not None or self.type == "approval"):
            raise InvalidInput(f"{name} is a decision and what a tool returned: give approve or tool_return, not both")
        if self.approve is not None:
            if self.type not in (None, "approval"):
                raise InvalidInput(f"{name} is of type {self.type!r}: a decision is of type 'approval'")
            return ToolDecision(self.tool_call_id, self.approve, self.reason, self._arguments_text(name))
        if self.tool_return is None:
            raise InvalidInput(f"{name} has neither approve nor tool_return")
        text, images = parse_return(self.tool_return, f"{where.removeprefix('body.')}.tool_return")
        return ToolReturn(
            self.tool_call_id, text, self.status, tuple(self.stdout or ()), tuple(self.stderr or ()), images
        )

    def _arguments_text(self, name: str) -> str | None:
        """The arguments as JSON. Raises: InvalidInput: they hold NaN or an infinity."""
        if self.arguments is None or isinstance(self.arguments, str):
            return self.arguments
        try:
            return json.dumps(self.arguments, ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise InvalidInput(f"{name}: its arguments can't be written as JSON: {error}") from error


class AnswerIn(WireRequest):
    """A message that answers calls. The older form is one decision, by the id of its call or of the request."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in ANSWER_FIELDS]
        }
    )

    type: Literal["approval", "tool_return"] | None = None
    approvals: Items[CallAnswerIn] | None = None
    tool_returns: Items[CallAnswerIn] | None = None
    approve: bool | None = None
    approval_request_id: Name | None = None
    reason: str | None = None
    otid: Name | None = None

    def answers(self, where: str) -> list[Answer]:
        """The answers, as a run stores them. `where`: the place of the message. Raises: InvalidInput, NotSupported."""
        answers = [*(self.approvals or ()), *(self.tool_returns or ())]
        if answers:
            return [answer.answer(where) for answer in answers]
        if self.approve is None:
            raise InvalidInput(f"{where}: give approvals, tool_returns, or approve")
        return [ToolDecision(self.approval_request_id or "", self.approve, self.reason)]


def pending_shape(pending: WaitingCalls | None) -> dict[str, Any] | None:
    """The request for approval that an agent waits for, with its unanswered calls."""
    if pending is None:
        return None
    waiting = {waiting.call.call_id for waiting in pending.waiting}
    for shape in wire_messages(pending.message, Display()):
        if shape["message_type"] == "approval_request_message":
            calls = [call for call in shape["tool_calls"] if call["tool_call_id"] in waiting]
            return shape | {"tool_call": calls[0], "tool_calls": calls} if calls else None
    return None


_IMPORT: Mapping[str, Any] = {
    "type": "object",
    "required": ["role", "text", "occurred_at"],
    "properties": {
        "role": {"enum": ["user", "assistant", "system"]},
        "text": {"type": "string", "pattern": FILLED},
        "occurred_at": {"type": "string", "format": "date-time"},
        "name": {"type": ["string", "null"], "pattern": FILLED, "maxLength": NAME_MAX_CHARS},
        "id": {"type": ["string", "null"], "pattern": FILLED, "maxLength": KEY_MAX_CHARS},
    },
}


class ClientSkill(WireRequest):
    """A skill in the client's environment: the model is told of it, and reads it there."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=5_000)]
    location: Annotated[str, Field(min_length=1, max_length=2_000)]


class MessageIn(WireRequest):
    """One message of `messages`."""

    type: Literal["message"] | None = None
    role: Literal["user", "system", "assistant", "developer"]
    content: Content
    name: Name | None = None
    otid: Name | None = None
    sender_id: Name | None = None

    def new(self, parts: tuple[Text | Image | ImageLink, ...]) -> NewMessage:
        """The message with these parts, for the library. OpenAI's newer models call `developer` what others call
        `system`."""
        role = "system" if self.role == "developer" else self.role
        return NewMessage(parts, role, self.name, self.otid, self.sender_id)


def _tag_of(item: Any) -> str:
    """Which type of `_Item` an entry of `messages` is parsed as: "answer()" or "message()". Null counts as missing."""
    if not isinstance(item, dict):
        return "answer()" if isinstance(item, AnswerIn) else "message()"
    kind = item.get("type")
    has_answer = kind is None and any(item.get(name) is not None for name in ANSWER_FIELDS)
    return "answer()" if has_answer or kind in ("approval", "tool_return") else "message()"


# The tags look like steps of the validator, so that error texts leave them out.
_Item = Annotated[Annotated[MessageIn, Tag("message()")] | Annotated[AnswerIn, Tag("answer()")], Discriminator(_tag_of)]


FORM_FIELDS = (
    *("include_return_message_types", "include_compaction_messages", "use_assistant_message"),
    *("assistant_message_tool_name", "assistant_message_tool_kwarg"),
)


class SendRequest(WireRequest):
    """A request to an agent: exactly one of `input` and `messages`, and how to answer.

    `max_tokens` and `max_cost_usd` are Perdure's: what the whole run may use, in and out, before it ends between two of
    its steps. So is `if_busy`: whether to wait behind a run of this conversation, or to be refused with 409, the
    default. Content that this server does not support is refused with 501 (`contents`).
    """

    input: Content | None = None
    messages: Annotated[list[_Item], MaxItems("messages_per_request"), keywords(minItems=1)] | None = None
    max_steps: Annotated[int, keywords(minimum=1, maximum=MAX_STEPS)] | None = None
    max_tokens: Annotated[int, keywords(minimum=1, maximum=LIMIT_MAX)] | None = None
    max_cost_usd: Annotated[float, Field(gt=0, lt=LIMIT_MAX)] | None = None
    streaming: bool = False
    stream_tokens: bool = False
    include_pings: bool = True
    background: bool = False
    use_assistant_message: bool = True
    assistant_message_tool_name: Name = SEND_MESSAGE
    assistant_message_tool_kwarg: Name = "message"
    include_return_message_types: Items[MessageType] | None = None
    include_compaction_messages: bool = False
    if_busy: IfBusy = "reject"
    client_tools: Annotated[list[Any], MaxItems("tools_per_agent")] | None = None
    client_skills: Items[ClientSkill] | None = None
    agent_id: AgentIdIn | None = None
    override_model: Name | None = None
    override_system: str | None = None
    return_logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    return_token_ids: bool = False
    callback_url: str | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The fields, each of which may be null, and that one of `input` and `messages` is needed."""
        reference = handler(schema)
        shape = handler.resolve_ref_schema(reference)
        for name, field in shape["properties"].items():
            if {"type": "null"} not in field.get("anyOf", ()):
                notes = {key: field.pop(key) for key in ("default", "title", "description") if key in field}
                shape["properties"][name] = {"anyOf": [field, {"type": "null"}], **notes}
        shape["oneOf"] = [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in ("input", "messages")
        ]
        return reference

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        """A field that is null counts as missing."""
        return {name: field for name, field in value.items() if field is not None} if type(value) is dict else value

    @property
    def display(self) -> Display:
        """Which messages of the reply the client gets, and in which form."""
        return Display.of(self.form)

    @property
    def run_options(self) -> RunOptions:
        """What the request sets for its own model calls."""
        return RunOptions(
            model=self.override_model,
            system=self.override_system,
            logprobs=self.return_logprobs,
            top_logprobs=self.top_logprobs if self.return_logprobs else None,
            token_ids=self.return_token_ids,
            max_tokens=self.max_tokens,
            max_cost_usd=self.max_cost_usd,
            form=self.form,
        )

    @property
    def form(self) -> dict[str, Any]:
        """The fields that choose the form of the answer's messages, without defaults; resumable streams' too."""
        names = FORM_FIELDS if not self.background else (*FORM_FIELDS, "include_pings")
        sent = self.model_fields_set
        shape = {
            name: getattr(self, name)
            for name in names
            if name in sent and getattr(self, name) != type(self).model_fields[name].default
        }
        return shape | ({"stream_tokens": self.stream_tokens} if self.background else {})

    def contents(self) -> tuple[Sequence[NewMessage], Sequence[Answer] | None]:
        """The messages to store, and the answers to calls; None: nothing answers any.

        Raises: InvalidInput, NotSupported.
        """
        if (self.input is None) == (self.messages is None):
            raise InvalidInput("body: give exactly one of `input` and `messages`")
        if self.input is not None:
            return [NewMessage(parse_parts(self.input, "input"))], None
        messages: list[NewMessage] = []
        answers: list[Answer] = []
        for index, item in enumerate(self.messages or ()):
            if isinstance(item, AnswerIn):
                answers += item.answers(f"body.messages.{index}")
            else:
                messages.append(item.new(parse_parts(item.content, f"messages.{index}.content")))
        return messages, answers or None

    def run_request(
        self,
        agent_id: AgentId,
        conversation_seq: int = 0,
        *,
        background: bool = False,
        key: str | None = None,
        callback: Callback | None = None,
    ) -> RunRequest:
        """What the request asks of an agent. Raises: InvalidInput, NotSupported."""
        messages, answers = self.contents()
        return RunRequest(
            agent_id=agent_id,
            conversation_seq=conversation_seq,
            messages=tuple(messages),
            answers=None if answers is None else tuple(answers),
            answer_otid=next((item.otid for item in self.messages or () if isinstance(item, AnswerIn)), None),
            client_tools=None if self.client_tools is self.client_skills is None else self.client_shapes(),
            if_busy=self.if_busy,
            background=background,
            max_steps=self.max_steps,
            renew_steps=True,  # or a client with tools of its own could make only so many calls
            options=self.run_options,
            idempotency_key=key,
            callback=callback,
        )

    def client_shapes(self) -> tuple[Mapping[str, Any], ...] | None:
        """The client's tools and skills as a run stores them; None: the request mentions neither.

        Raises: InvalidInput: no tool can be made of one.
        """
        tools = client_tools_of(self.client_tools).shapes if self.client_tools else ()
        skills = dict.fromkeys(self.client_skills or ())  # one that is sent twice is one
        return (*tools, *({"type": SKILL, **skill.model_dump()} for skill in skills)) or (
            None if self.client_skills is None else ()
        )

    def key(self, header: str | None) -> str | None:
        """Return the idempotency key: the header's, else the `otid` of the messages, which a client repeats when it
        tries again; None: a message has none."""
        if header is not None:
            return header
        otids = [item.otid or "" for item in self.messages or ()]
        return key_of_otids(otids) if otids and all(otids) else None


class CancelRequest(WireRequest):
    """The runs to cancel; without a list, all that have not ended."""

    run_ids: Items[RunIdIn] | None = None


class ResetRequest(WireRequest):
    """A reset. A Perdure agent has no default first messages, so adding those adds nothing."""

    add_default_initial_messages: bool | None = None


class InputChange(WireRequest):
    """What a user's message or a system message in the log says instead. `message` is any that has words."""

    message_type: Literal["user_message", "system_message", "message"]
    content: Content

    def edit(self) -> tuple[EditedPart | None, Sequence[Text | Image | ImageLink]]:
        """What changes, and what takes its place. Raises: InvalidInput, NotSupported."""
        parts: dict[str, EditedPart] = {"user_message": "user", "system_message": "system"}
        return parts.get(self.message_type), parse_parts(self.content, "content")


class AnswerChange(WireRequest):
    """What an agent's message says instead."""

    message_type: Literal["assistant_message"]
    content: Content

    def edit(self) -> tuple[EditedPart, Sequence[Text]]:
        """What changes, and what takes its place. Raises: NotSupported."""
        return "assistant", [Text(join_texts(self.content, "content: an assistant_message has only text"))]


class ReasoningChange(WireRequest):
    """What an agent thought instead."""

    message_type: Literal["reasoning_message"]
    reasoning: Filled

    def edit(self) -> tuple[EditedPart, Sequence[Text]]:
        """What changes, and what takes its place."""
        return "reasoning", [Text(self.reasoning)]


class ReturnChange(WireRequest):
    """What a tool returned instead; `tool_call_id` names the call if the message has several results."""

    message_type: Literal["tool_return_message"]
    tool_return: str
    tool_call_id: str | None = None

    def edit(self) -> tuple[EditedPart, Sequence[Text]]:
        """What changes, and what takes its place."""
        return "tool", [Text(self.tool_return)]


def _with_type(body: Any) -> Any:
    """The change with the `message_type` that its fields show, if it has none: clients before 1.0 leave it out."""
    if not isinstance(body, dict) or body.get("message_type") is not None:
        return body
    shown = (f"{name}_message" for name in ("reasoning", "tool_return") if name in body)
    return {**body, "message_type": next(shown, "message")}


MessageChange = Annotated[
    InputChange | AnswerChange | ReasoningChange | ReturnChange,
    Discriminator("message_type"),
    BeforeValidator(_with_type),
]
"""A change of one wire message."""


class ImportRequest(WireRequest):
    """Messages from elsewhere, oldest first: each with `role`, `text`, `occurred_at`, and perhaps `name` and `id`."""

    messages: Annotated[list[Annotated[dict[str, Any], WithJsonSchema({**_IMPORT})]], MaxItems("imports_per_request")]
    conversation_id: ConversationOrDefault | None = None


class SaidIn(WireRequest):
    """A message of a request to a provider, or of its answer."""

    role: Name
    content: str | Items[Part] | None = None

    @property
    def text(self) -> str:
        """The texts of its content. Raises: NotSupported: a part is something else."""
        return join_texts(self.content or "", "content: only texts are captured; leave other parts out").strip()


class CaptureRequest(WireRequest):
    """What a program said to a provider, and what that answered."""

    request_messages: Annotated[list[SaidIn], MaxItems("imports_per_request")]
    response_dict: SaidIn | None = None
    provider: Annotated[str, Field(max_length=NAME_MAX_CHARS)] = ""
    model: str | None = None

    def messages(self, at: datetime) -> list[ImportedMessage]:
        """What users and the model said, as messages of this time; the others are the program's own. Raises:
        NotSupported."""
        said = [*self.request_messages, *((self.response_dict,) if self.response_dict else ())]
        return [
            ImportedMessage(role=one.role, text=one.text, occurred_at=at)
            for one in said
            if (one.role == "user" or one.role == "assistant") and one.text
        ]


class ResumeRequest(WireRequest):
    """Where to continue the stream of a run: after the chunk numbered `starting_after`; 0 is from its beginning.

    In a conversation, `run_id` names the run, or `otid` one of its messages; without both it is the newest that has not
    ended.
    """

    starting_after: int = 0
    include_pings: bool = True
    agent_id: AgentIdIn | None = None
    run_id: RunIdIn | None = None
    otid: Name | None = None


async def read_send(
    request: Request, *, always_streams: bool = False, streams_by_default: bool = False, may_call_back: bool = False
) -> SendRequest:
    """Read and parse the body of a message request; the flags say how its route treats `streaming`.

    Raises: RequestValidationError, InvalidInput.
    """
    # `Request.body` would hold the body until the answer has ended.
    text = b"".join([piece async for piece in request.stream()])
    try:
        try:
            body = SendRequest.model_validate_json(text)
        except ValidationError as error:
            # pydantic's parser refuses half a character.
            if "hex escape" not in str(error) or (value := json_object(text)) is None:
                raise
            body = SendRequest.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise RequestValidationError([{**problem, "loc": ("body", *problem["loc"])} for problem in problems]) from error
    if always_streams or (streams_by_default and "streaming" not in body.model_fields_set):
        body = body.model_copy(update={"streaming": True})
    elif not body.streaming and (body.stream_tokens or body.background):
        raise InvalidInput(
            "Streaming options set without streaming enabled: stream_tokens and background need streaming=true"
        )
    if body.callback_url is not None and not may_call_back:
        raise InvalidInput("callback_url: only messages/async and batches take one; here the answer is the report")
    return body


def key_of_otids(otids: Sequence[str]) -> str:
    """The idempotency key of a request whose messages have these `otid`s."""
    return OTID_KEY + hashlib.sha256("\0".join(otids).encode("utf-8", "surrogatepass")).hexdigest()
