"""Messages as clients send them: the body of `POST .../messages` and what is made of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, GetJsonSchemaHandler, ValidationError, WithJsonSchema, model_validator
from pydantic_core import CoreSchema
from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.messages import Text
from perdure.core.runs import IfBusy
from perdure.domain.conversations.importing import NAME_MAX_CHARS
from perdure.engine.approvals.answers import SKILL
from perdure.engine.run.accept import MAX_STEPS
from perdure.library.checks import KEY_MAX_CHARS, check_key
from perdure.library.client_tools import client_tools_of
from perdure.library.services.messages import NewMessage
from perdure.server.errors import invalid_body
from perdure.server.ids import IdFormat
from perdure.server.limits import Items, MaxItems
from perdure.server.unsupported import NotSupported
from perdure.server.wire.approvals import AnswerIn, is_answer
from perdure.server.wire.base import WireRequest
from perdure.server.wire.messages import SEND_MESSAGE, MessageType, Shown
from perdure.server.wire.values import FILLED, Filled, keywords

_RunId = Annotated[str, IdFormat("run")]

OTHER_PARTS = frozenset(
    {
        "image",
        "tool_call",
        "tool_return",
        "reasoning",
        "redacted_reasoning",
        "omitted_reasoning",
        "summarized_reasoning",
    }
)


_PART: Mapping[str, Any] = {
    "type": "object",
    "required": ["text"],
    "properties": {
        "type": {"enum": ["text", *sorted(OTHER_PARTS)], "default": "text"},
        "text": {"type": "string", "pattern": FILLED},
    },
}
_Content = Filled | Annotated[Items[Annotated[dict[str, Any], WithJsonSchema({**_PART})]], keywords(minItems=1)]
"""A text, or parts; only texts are taken yet, and others answered with 501."""

_IMPORTED: Mapping[str, Any] = {
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

_EITHER = ("input", "messages")


class ClientSkill(WireRequest):
    """A skill of the client's environment. The model is told that it is there, and reads it by itself."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=5_000)]
    location: Annotated[str, Field(min_length=1, max_length=2_000)]


class MessageIn(WireRequest):
    """One message of `messages`."""

    role: Literal["user", "system", "assistant"]
    content: _Content
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None


class _Documented:
    """The metadata that says in the OpenAPI document which shapes an object has that is read later."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        answers = ("approvals", "tool_returns", "approve")
        one_of_them = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in answers]
        answer = {"allOf": [handler(AnswerIn.__pydantic_core_schema__), {"anyOf": one_of_them}]}
        return {"anyOf": [handler(MessageIn.__pydantic_core_schema__), answer]}


class SendRequest(WireRequest):
    """What is said and how it is answered: exactly one of `input` and `messages`.

    `if_busy` is ours: whether to wait behind a run of this conversation, or to be refused with 409, which is the
    default. Fields that ask for what this server can't do yet are refused with 501 (`read_send`).
    """

    input: _Content | None = None
    messages: (
        Annotated[
            list[Annotated[dict[str, Any], _Documented()]], MaxItems("messages_per_request"), keywords(minItems=1)
        ]
        | None
    ) = None
    max_steps: Annotated[int, keywords(minimum=1, maximum=MAX_STEPS)] | None = None
    streaming: bool = False
    stream_tokens: bool = False
    include_pings: bool = True
    background: bool = False
    use_assistant_message: bool = True
    assistant_message_tool_name: str = SEND_MESSAGE
    assistant_message_tool_kwarg: str = "message"
    include_return_message_types: Items[MessageType] | None = None
    if_busy: IfBusy = "reject"
    client_tools: Annotated[list[Any], MaxItems("tools_per_agent")] | None = None
    client_skills: Items[ClientSkill] | None = None
    agent_id: Annotated[str, IdFormat("agent")] | None = None
    override_model: str | None = None
    override_system: str | None = None
    return_logprobs: bool = False
    return_token_ids: bool = False
    callback_url: str | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The fields, each of which may be null, and that one of `input` and `messages` is needed."""
        shape = handler(schema)
        found = handler.resolve_ref_schema(shape)
        for name, field in found["properties"].items():
            if {"type": "null"} not in field.get("anyOf", ()):
                about = {key: field.pop(key) for key in ("default", "title", "description") if key in field}
                found["properties"][name] = {"anyOf": [field, {"type": "null"}], **about}
        input_, messages = ({"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in _EITHER)
        found["oneOf"] = [input_, messages]
        return shape

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        """A field that is null is one that was not sent."""
        return {name: field for name, field in value.items() if field is not None} if type(value) is dict else value

    @property
    def shown(self) -> Shown:
        types = self.include_return_message_types
        return Shown(
            None if types is None else frozenset(types),
            self.use_assistant_message,
            self.assistant_message_tool_name,
            self.assistant_message_tool_kwarg,
        )


class CancelRequest(WireRequest):
    """Which runs are to stop; without a list all that have not ended."""

    run_ids: Items[_RunId] | None = None


class ResetRequest(WireRequest):
    """A Perdure agent has no messages that it begins with of itself, so adding those adds nothing."""

    add_default_initial_messages: bool | None = None


class ImportRequest(WireRequest):
    """History that took place elsewhere, oldest first: each with `role`, `text`, `occurred_at`, and `name` and `id` if
    there are any."""

    messages: Annotated[list[Annotated[dict[str, Any], WithJsonSchema({**_IMPORTED})]], MaxItems("imports_per_request")]
    conversation_id: Annotated[str, IdFormat("conversation", words=("default",))] | None = None


class ResumeRequest(WireRequest):
    """From where a stream of a run goes on: after the chunk numbered `starting_after`; 0 is from its beginning.

    Of a conversation `run_id` names the run, or `otid` that of a message it was asked with; else it is the newest that
    has not ended.
    """

    starting_after: int = 0
    include_pings: bool = True
    agent_id: Annotated[str, IdFormat("agent")] | None = None
    run_id: Annotated[str, IdFormat("run")] | None = None
    otid: Annotated[str, Field(max_length=500)] | None = None


R = TypeVar("R", bound=WireRequest)


async def take_body(request: Request) -> bytes:
    """The body, of which the request keeps nothing: `Request.body` would hold it until the answer has ended."""
    return b"".join([piece async for piece in request.stream()])


def read_body(kind: type[R], body: bytes) -> R:
    """The body of a route that can do without one. Raises: RequestValidationError."""
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise invalid_body(error) from error


def read_send(body: bytes, *, streaming: bool = False, streams_unless_told: bool = False) -> SendRequest:
    """The body of a message request, parsed once. `streaming`: the route always streams, or unless it is told not to.

    Raises: RequestValidationError, InvalidInput; NotSupported: it asks for what can't be done yet.
    """
    try:
        request = SendRequest.model_validate_json(body)
    except ValidationError as error:
        raise invalid_body(error) from error
    if (request.input is None) == (request.messages is None):
        raise InvalidInput("body: give exactly one of `input` and `messages`")
    if streaming or (streams_unless_told and "streaming" not in request.model_fields_set):
        request = request.model_copy(update={"streaming": True})
    elif not request.streaming and (request.stream_tokens or request.background):
        raise InvalidInput(
            "Streaming options set without streaming enabled: stream_tokens and background need streaming=true"
        )
    for name in ("override_model", "override_system", "callback_url"):
        if getattr(request, name):
            raise NotSupported(f"{name} is not supported by this server yet")
    if request.return_logprobs or request.return_token_ids:
        raise NotSupported("return_logprobs and return_token_ids are not supported by this server yet")
    return request


def messages_of(request: SendRequest) -> Sequence[NewMessage]:
    """The messages to store. Raises: RequestValidationError, InvalidInput, NotSupported."""
    if request.input is not None:
        return (NewMessage(_parts(request.input, "input")),)
    messages: list[NewMessage] = []
    for index, item in enumerate(request.messages or ()):
        if is_answer(item):
            continue
        if (kind := item.get("type")) not in (None, "message"):
            where = f"body.messages.{index}.type"
            raise InvalidInput(f"{where}: must be 'message', 'approval' or 'tool_return', not {kind!r:.80}")
        try:
            message = MessageIn.model_validate(item)
        except ValidationError as error:
            raise invalid_body(error, "messages", index) from error
        parts = _parts(message.content, f"messages.{index}.content")
        messages.append(NewMessage(parts, message.role, message.name, message.otid, message.sender_id))
    return messages


def key_of(header: str | None, request: SendRequest) -> str | None:
    """The idempotency key of the request: that of the header; else one made of the messages' `otid`s, which a client
    keeps when it tries again. None if a message has none. Raises: InvalidInput."""
    if header is not None:
        check_key(header)
        return header
    items = request.messages or ()
    otids = [otid for item in items if isinstance(otid := item.get("otid"), str) and otid]
    if not otids or len(otids) < len(items):
        return None
    return key_of_otids(otids)


def key_of_otids(otids: Sequence[str]) -> str:
    """The key of a request whose messages have these `otid`s."""
    return "otid:" + hashlib.sha256("\0".join(otids).encode("utf-8", "surrogatepass")).hexdigest()


def _parts(content: str | list[dict[str, Any]], where: str) -> tuple[Text, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_part(part, f"{where}.{index}") for index, part in enumerate(content))


def _part(part: Mapping[str, Any], where: str) -> Text:
    kind = part.get("type", "text")
    if isinstance(kind, str) and kind in OTHER_PARTS:
        raise NotSupported(f"{where}: content of type {kind!r} is not supported by this server yet, only text")
    if kind != "text":
        raise InvalidInput(f"body.{where}.type: must be 'text', not {kind!r:.80}")
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidInput(f"body.{where}.text: must be a text, not {text!r:.80}")
    return Text(text)


def client_tools_in(request: SendRequest) -> tuple[Mapping[str, Any], ...] | None:
    """The tools that the client runs and the skills that it has, as a run stores them; None: there are none.

    Raises: InvalidInput: no tool can be made of one.
    """
    tools = client_tools_of(request.client_tools).shapes if request.client_tools else ()
    skills = dict.fromkeys(request.client_skills or ())  # one that is sent twice is one
    return (*tools, *({"type": SKILL, **skill.model_dump()} for skill in skills)) or None
