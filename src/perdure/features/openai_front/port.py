"""A request of OpenAI's chat API to a model whose provider speaks another one, through the model port."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.app import App
from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import ImageLink, Message, Part, Text, ToolCall, ToolResult, text_of
from perdure.core.models import ModelDelta, ModelOptions, ModelReply, ModelRequest
from perdure.features.openai_front.answers import Answer, data_line
from perdure.features.openai_front.bodies import ChatRequest, CompletionMessage
from perdure.server.wire.base import parse_parts
from perdure.server.wire.http import json_bytes
from perdure.server.wire.sse import DONE


@dataclass(frozen=True, slots=True)
class PortRequest:
    """A request to a model of another API."""

    body: ChatRequest
    request: ModelRequest

    @classmethod
    async def of(cls, app: App, handle: str, shape: Mapping[str, Any]) -> PortRequest:
        """The request of this body. Raises: ModelNotFound, InvalidInput, NotSupported."""
        body = ChatRequest.model_validate(shape)
        if app.models.find(handle) is None:
            raise app.models.not_found(handle)
        request = ModelRequest(
            model=handle,
            system=body.system,
            messages=tuple([message async for message in _messages(app, body.messages, shape["messages"])]),
            tools=body.tools_offered or (),
            options=ModelOptions.from_settings(body.run_options.settings),
        )
        return cls(body, request)

    async def answer(self, app: App) -> AsyncIterator[bytes]:
        """The body of the answer, in pieces. Raises: ModelError."""
        model, body = app.models.find(self.request.model), self.body
        assert model is not None
        head = Answer(f"chatcmpl-{app.ports.ids.new('message')}", body.model, int(app.ports.clock.now().timestamp()))
        reply: ModelReply | None = None
        async for piece in model.respond(self.request):
            if isinstance(piece, ModelReply):
                reply = piece
            elif body.stream and isinstance(piece, ModelDelta) and piece.kind == "text":
                yield data_line(head.chunk({"role": "assistant", "content": piece.text}))
        assert reply is not None
        calls = [_call_shape(part) for part in reply.parts if isinstance(part, ToolCall)]
        text = text_of([part for part in reply.parts if isinstance(part, Text)])
        answer = head.ended(reply.stop_reason, reply.usage, calls, text=text)
        if not body.stream:
            yield json_bytes(answer.shape)
            return
        for chunk in answer.last_chunks(with_usage=True):
            yield data_line(chunk)
        yield DONE


def _call_shape(call: ToolCall) -> dict[str, Any]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


async def _messages(
    app: App, messages: Sequence[CompletionMessage], shapes: Sequence[Mapping[str, Any]]
) -> AsyncIterator[Message]:
    """The messages as the port takes them, without system texts. `shapes`: as they came."""
    now, names = app.ports.clock.now(), dict[str, str]()
    for seq, (message, shape) in enumerate(zip(messages, shapes, strict=True)):
        if message.role in ("system", "developer", "function"):
            continue
        parts: list[Part] = []
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            parts.append(ToolResult(call_id, names.get(call_id, ""), message.text))
        else:
            sent = parse_parts(message.content or "", f"messages.{seq}.content")
            parts += [await app.fetch_image(part) if isinstance(part, ImageLink) else part for part in sent]
        if not isinstance(made_calls := shape.get("tool_calls") or [], list):
            raise InvalidInput(f"body.messages.{seq}.tool_calls: it is {made_calls!r:.80}: give a list")
        for call in made_calls:
            made = _call_of(call, f"body.messages.{seq}.tool_calls")
            names[made.call_id] = made.name
            parts.append(made)
        yield Message(
            id=MessageId(app.ports.ids.new("message")),
            agent_id=AgentId(""),
            seq=seq,
            conversation_seq=0,
            role="user" if message.role == "user" else "tool" if message.role == "tool" else "assistant",
            parts=tuple(one for one in parts if one != Text("")),
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
