"""An answer in parts, of an agent or of a model alone, and how OpenAI's chat API writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Literal, NamedTuple, NotRequired, Protocol

from starlette.requests import Request
from starlette.responses import StreamingResponse
from typing_extensions import TypedDict

from perdure.core.errors import RunFailed
from perdure.core.events import Delta, DeltaStreamed, MessageAdded, RunEnded, StoredEvent
from perdure.core.ids import MessageId
from perdure.core.messages import Message, Text, ToolCall, text_of
from perdure.core.models import ModelReply
from perdure.core.runs import FAILED_REASONS, NO_USAGE, Failure, Run, StopReason, Usage
from perdure.engine.run.accept import Accepted
from perdure.library.agent import AsyncAgentById
from perdure.library.messages.reply import Reply
from perdure.server.routes.messages import reply_answer
from perdure.server.wire.chunks import Chunk, ChunkMaker
from perdure.server.wire.http import Json, forget_body
from perdure.server.wire.messages import Display, wire_messages
from perdure.server.wire.shapes import Object
from perdure.server.wire.sse import Streams

_DISPLAY = Display(types=frozenset({"assistant_message"}))


class AnswerPart(NamedTuple):
    """A part of an answer, with its id: a text, or a call that the caller has to run."""

    id: str
    said: str | ToolCall


class AnswerEnd(NamedTuple):
    """How an answer has ended. No reason: it has not."""

    reason: StopReason | None
    usage: Usage | None = None
    failure: Failure | None = None
    logprobs: Mapping[str, Any] | None = None

    @property
    def is_cut(self) -> bool:
        """Whether a limit ended it."""
        return self.reason in ("max_tokens_exceeded", "max_steps")

    @property
    def has_failed(self) -> bool:
        """Whether there is no answer."""
        return self.reason in FAILED_REASONS and not self.is_cut


def items_of(messages: Iterable[Message]) -> Iterator[AnswerPart]:
    """Yield what the agent says in messages of its run, by text or by `send_message`, and the calls for the caller."""
    for message in messages:
        id_ = _own_id(message.id)
        is_own = message.step_id is not None and message.kind == "message" and message.role == "assistant"
        if text := "\n".join(str(one["content"]) for one in (wire_messages(message, _DISPLAY) if is_own else ())):
            yield AnswerPart(id_, text)
        for place, call in enumerate(message.calls):
            if call.awaits == "client":
                yield AnswerPart(f"{id_}_{place}", replace(call, arguments=call.own_arguments))


def items_of_reply(reply: ModelReply, message_id: MessageId) -> Iterator[AnswerPart]:
    """Yield the text and the calls in an answer of a model."""
    if text := text_of([part for part in reply.parts if isinstance(part, Text)]):
        yield AnswerPart(_own_id(message_id), text)
    for place, call in enumerate(part for part in reply.parts if isinstance(part, ToolCall)):
        yield AnswerPart(f"{_own_id(message_id)}_{place}", call)


def _own_id(message_id: str) -> str:
    return message_id.partition("-")[2]


class AnswerWriter(Protocol):
    """Writes one answer in the form of an API: whole, or as the chunks of a stream. `named`: stream events carry their
    `type` as their name; `ping` keeps a quiet connection open."""

    named: ClassVar[bool] = False

    def whole(self, items: Iterable[AnswerPart], outcome: AnswerEnd) -> dict[str, Any]:
        """Return the whole answer."""

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the first chunks, once."""

    def piece(self, id_: str, text: str) -> Iterator[dict[str, Any]]:
        """Yield the chunks for a piece of the text of the message `id_`."""

    def call(self, id_: str, call: ToolCall) -> Iterator[dict[str, Any]]:
        """Yield the chunks for a call of the caller's tools."""

    def end(self, outcome: AnswerEnd) -> Iterator[Chunk]:
        """Yield the last chunks, with why the answer ended."""

    def ping(self) -> dict[str, Any]:
        """Return a chunk without content."""

    def of_reply(self, reply: Reply) -> dict[str, Any]:
        """The whole answer of an agent."""
        outcome = AnswerEnd(reply.stop_reason, reply.usage, reply.failure, reply.logprobs)
        return self.whole(items_of(reply.messages), outcome)

    def last(self, reply: ModelReply, message_id: MessageId) -> Iterator[Chunk]:
        """Yield the chunks of a model's answer that come after those of its text."""
        for id_, said in items_of_reply(reply, message_id):
            if isinstance(said, ToolCall):
                yield from self.call(id_, said)
        yield from self.end(AnswerEnd(reply.stop_reason, reply.usage))


class AnswerStream(ChunkMaker[StoredEvent | Delta]):
    """The chunks of a stream of a run: of each text as it is made, and of each whole message."""

    def __init__(self, accepted: Accepted, writer: AnswerWriter) -> None:
        self.name, self.named, self._writer = accepted.run.id, writer.named, writer
        self._has_all = not accepted.repeated  # who joins a run under way has not seen all pieces of a text
        self._sent: dict[str, str] = {}
        self._end: RunEnded | None = None

    def of(self, event: StoredEvent | Delta, *, now: datetime) -> Iterator[Chunk]:
        if self.named:
            yield from self._writer.begin()
        delta = event if isinstance(event, Delta) and self._has_all else None
        match event.event if isinstance(event, StoredEvent) else None:
            case DeltaStreamed(delta=stored):
                delta = stored
            case MessageAdded(message=Message() as message):
                sent = self._sent.pop(message.id, "")
                for id_, said in items_of([message]):
                    if isinstance(said, ToolCall):
                        yield from self._writer.call(id_, said)
                    elif said.startswith(sent) and said != sent:  # what did not come in pieces comes whole
                        yield from self._writer.piece(id_, said.removeprefix(sent))
            case RunEnded() as end:
                self._end = end
        if delta is not None and delta.kind == "text" and delta.text:
            self._sent[delta.message_id] = self._sent.get(delta.message_id, "") + delta.text
            yield from self._writer.piece(_own_id(delta.message_id), delta.text)

    def end(self) -> Iterator[Chunk]:
        if (end := self._end) is not None:
            yield from self._writer.end(AnswerEnd(end.stop_reason, end.usage, end.failure))

    def broken(self, failure: Failure) -> Iterator[Chunk]:
        yield from self._writer.end(AnswerEnd("error", failure=failure))

    def ping(self, now: datetime) -> dict[str, Any]:
        return self._writer.ping()

    def error(self, failure: Failure) -> dict[str, Any]:
        return error_shape(failure.kind, failure.message)


async def answer_run(
    request: Request, agent: AsyncAgentById, accepted: Accepted, writer: AnswerWriter, *, stream: bool | None
) -> Json[Any] | StreamingResponse:
    """The answer to a request that began a run of an agent."""
    streams: Streams = request.app.state.streams
    if not stream:
        return await reply_answer(streams, accepted, agent.reply_to(accepted), writer.of_reply)
    forget_body(request)
    return await streams.stream(agent.follow_accepted(accepted), AnswerStream(accepted, writer), pings=True)


def error_shape(code: str, message: str) -> dict[str, Any]:
    """An error within a stream, as OpenAI's API has it."""
    return {"error": {"message": message, "type": "server_error", "code": code, "param": None}}


class CompletionText(TypedDict):
    role: Literal["assistant"]
    content: str | None
    tool_calls: NotRequired[list[Object]]


class CompletionChoice(TypedDict):
    index: int
    message: CompletionText
    finish_reason: Literal["stop", "length", "tool_calls"]


class Completion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Object


class ChatWriter(AnswerWriter):
    """Writes an answer as OpenAI's chat API has it."""

    def __init__(self, id_: str, model: str, created: datetime, *, with_usage: bool = False) -> None:
        self._head = {"id": f"chatcmpl-{id_}", "created": int(created.timestamp()), "model": model}
        self._with_usage, self._begun, self._calls = with_usage, False, list[dict[str, Any]]()
        self._text_id = ""

    @classmethod
    def of_run(cls, run: Run, model: str = "", *, with_usage: bool = False) -> ChatWriter:
        """The writer of a run's answer; `model` is its name there, by default the agent's id."""
        return cls(run.id, model or run.key.agent_id, run.created_at, with_usage=with_usage)

    def of_reply(self, reply: Reply) -> dict[str, Any]:
        """The whole answer. Raises: RunFailed: there is none, for which an answer has no field."""
        if (failure := reply.failure) is not None and AnswerEnd(reply.stop_reason).has_failed:
            raise RunFailed(failure.message, run_id=reply.run_id, stop_reason=reply.stop_reason, reply=reply)
        return super().of_reply(reply)

    def whole(self, items: Iterable[AnswerPart], outcome: AnswerEnd) -> dict[str, Any]:
        said = [item.said for item in items]
        calls = [_call_shape(one) for one in said if isinstance(one, ToolCall)]
        text = "\n".join(one for one in said if isinstance(one, str))
        message = {"role": "assistant", "content": text, "refusal": None, **({"tool_calls": calls} if calls else {})}
        reason = _finish_reason(outcome, calls)
        choice = {"index": 0, "message": message, "logprobs": outcome.logprobs, "finish_reason": reason}
        head = {**self._head, "object": "chat.completion"}
        return {**head, "choices": [choice], "usage": _usage_shape(outcome.usage or NO_USAGE)}

    def begin(self) -> Iterator[dict[str, Any]]:
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""})

    def piece(self, id_: str, text: str) -> Iterator[dict[str, Any]]:
        yield from self.begin()
        is_next, self._text_id = self._text_id not in ("", id_), id_
        yield self._chunk({"content": f"\n{text}" if is_next else text})

    def call(self, id_: str, call: ToolCall) -> Iterator[dict[str, Any]]:
        self._calls.append({"index": len(self._calls), **_call_shape(call)})
        yield from ()

    def end(self, outcome: AnswerEnd) -> Iterator[Chunk]:
        if outcome.failure is not None and outcome.reason in FAILED_REASONS:
            yield outcome.failure
            return
        yield from self.begin()
        if self._calls:
            yield self._chunk({"tool_calls": self._calls})
        yield self._chunk({}, _finish_reason(outcome, self._calls))
        if self._with_usage:
            yield self._chunk() | {"usage": _usage_shape(outcome.usage or NO_USAGE)}

    def ping(self) -> dict[str, Any]:
        return self._chunk({})

    def _chunk(self, delta: Mapping[str, Any] | None = None, reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [] if delta is None else [choice]}


def _finish_reason(outcome: AnswerEnd, calls: Sequence[object]) -> str:
    return "tool_calls" if calls else "length" if outcome.is_cut else "stop"


def _call_shape(call: ToolCall) -> dict[str, Any]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage_shape(usage: Usage) -> dict[str, Any]:
    """The tokens of all model calls of the run."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
