"""A request of OpenAI's chat API to a model whose provider speaks another one, through the model port."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from perdure.app import App
from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import ImageLink, Message, Part, Text, ToolCall, ToolResult
from perdure.core.models import ModelDelta, ModelOptions, ModelPiece, ModelReply, ModelRequest
from perdure.features.openai_front.answers import AnswerEnd, ChatWriter, items_of_reply
from perdure.features.openai_front.bodies import ChatRequest, CompletionMessage
from perdure.server.wire.base import parse_parts
from perdure.server.wire.http import json_bytes
from perdure.server.wire.sse import DONE, data_line

OF_ANSWERS = ("response_format", "tool_choice", "parallel_tool_calls")
"""Settings that say what the agent's own answers are like."""


async def answer_on_port(
    app: App, handle: str, shape: Mapping[str, Any], settings: Mapping[str, Any]
) -> AsyncIterator[bytes]:
    """Return the body of the answer to a request, in pieces, which raise ModelError. `settings`: of an agent, for what
    the request does not set. Raises: ModelNotFound, InvalidInput, NotSupported."""
    body, model = ChatRequest.model_validate(shape), app.models.find(handle)
    if model is None:
        raise app.models.not_found(handle)
    own = {name: value for name, value in settings.items() if name not in OF_ANSWERS}
    request = ModelRequest(
        model=handle,
        system=body.system,
        messages=tuple([message async for message in _messages(app, body.messages, shape["messages"])]),
        tools=body.tools_offered or (),
        options=ModelOptions.from_settings({**own, **body.run_options.settings}),
    )
    return _answer(app, body, model.respond(request))


async def _answer(app: App, body: ChatRequest, pieces: AsyncIterator[ModelPiece]) -> AsyncIterator[bytes]:
    """Write what a model answers in the shape of the chat API. Raises: ModelError."""
    message_id = MessageId(app.ports.ids.new("message"))
    writer = ChatWriter(message_id, body.model, app.ports.clock.now(), with_usage=True)
    reply: ModelReply | None = None
    async for piece in pieces:
        if isinstance(piece, ModelReply):
            reply = piece
        elif body.stream and isinstance(piece, ModelDelta) and piece.kind == "text":
            for chunk in writer.piece(message_id, piece.text):
                yield data_line(chunk)
    assert reply is not None
    if not body.stream:
        outcome = AnswerEnd(reply.stop_reason, reply.usage)
        yield json_bytes(writer.whole(items_of_reply(reply, message_id), outcome))
        return
    for last in writer.last(reply, message_id):
        assert isinstance(last, dict)
        yield data_line(last)
    yield DONE


async def _messages(
    app: App, messages: Sequence[CompletionMessage], shapes: Sequence[Mapping[str, Any]]
) -> AsyncIterator[Message]:
    """The messages as the port takes them, without system texts. `shapes`: as they came."""
    now, names = app.ports.clock.now(), dict[str, str]()
    for seq, (message, shape) in enumerate(zip(messages, shapes, strict=True)):
        if message.role in ("system", "developer", "function"):
            continue
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            parts: list[Part] = [ToolResult(call_id, names.get(call_id, ""), message.text)]
        else:
            sent = parse_parts(message.content or "", f"messages.{seq}.content")
            parts = [await app.fetch_image(part) if isinstance(part, ImageLink) else part for part in sent]
        if not isinstance(calls := shape.get("tool_calls") or [], list):
            raise InvalidInput(f"body.messages.{seq}.tool_calls: it is {calls!r:.80}: give a list")
        made = [_call_of(call, f"body.messages.{seq}.tool_calls") for call in calls]
        names |= {call.call_id: call.name for call in made}
        yield Message(
            id=MessageId(app.ports.ids.new("message")),
            agent_id=AgentId(""),
            seq=seq,
            conversation_seq=0,
            role="user" if message.role == "user" else "tool" if message.role == "tool" else "assistant",
            parts=tuple(one for one in (*parts, *made) if one != Text("")),
            created_at=now,
            occurred_at=now,
        )


def _call_of(shape: Any, where: str) -> ToolCall:
    """A call of an earlier answer. Raises: InvalidInput: something is missing in it."""
    try:
        call_id, name, arguments = shape["id"], shape["function"]["name"], shape["function"].get("arguments") or "{}"
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"{where}: a call is {shape!r:.80}: give id and function") from error
    return ToolCall(str(call_id), str(name), arguments if isinstance(arguments, str) else json.dumps(arguments))
