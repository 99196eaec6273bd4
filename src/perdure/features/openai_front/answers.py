"""The answers of OpenAI's chat API: a whole one, and the chunks of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from perdure.core.events import Delta, DeltaStreamed, MessageAdded, RunEnded, StoredEvent
from perdure.core.messages import Message
from perdure.core.runs import FAILED_REASONS, NO_USAGE, Failure, Run, StopReason, Usage
from perdure.library.messages.reply import Reply
from perdure.server.wire.chunks import Chunk, ChunkMaker
from perdure.server.wire.messages import Display, wire_messages
from perdure.server.wire.shapes import Object

_DISPLAY = Display(types=frozenset({"assistant_message"}))


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


def completion_shape(reply: Reply, run: Run, model: str = "") -> dict[str, Any]:
    """The whole answer; `model` is its name there, by default the agent's id."""
    texts = [text for message in reply.messages for text in texts_of(message)]
    calls = [call for message in reply.messages for call in calls_shape(message)]
    message = {"role": "assistant", "content": "\n".join(texts), "refusal": None} | (
        {"tool_calls": calls} if calls else {}
    )
    reason = "tool_calls" if calls else finish_reason(reply.stop_reason)
    choice = {"index": 0, "message": message, "logprobs": reply.logprobs, "finish_reason": reason}
    return _head(run, "chat.completion", model) | {"choices": [choice], "usage": usage_shape(reply.usage)}


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """An answer of a model without an agent; `calls` as `calls_shape` has them."""

    id: str
    model: str
    created: int
    text: str = ""
    usage: Usage = NO_USAGE
    calls: Sequence[Mapping[str, Any]] = ()
    reason: str = "stop"

    @property
    def shape(self) -> dict[str, Any]:
        """The whole answer."""
        calls = {"tool_calls": list(self.calls)} if self.calls else {}
        message = {"role": "assistant", "content": self.text, "refusal": None, **calls}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.reason}
        return self._head("chat.completion") | {"choices": [choice], "usage": usage_shape(self.usage)}

    def chunk(self, delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        """A chunk of its stream."""
        choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": reason}
        return self._head("chat.completion.chunk") | {"choices": [choice]}

    def last_chunks(self, *, with_usage: bool) -> Iterator[dict[str, Any]]:
        """The chunks behind those of its text."""
        if self.calls:
            yield self.chunk({"tool_calls": [{"index": place, **one} for place, one in enumerate(self.calls)]})
        yield self.chunk({}, self.reason)
        if with_usage:
            yield self._head("chat.completion.chunk") | {"choices": [], "usage": usage_shape(self.usage)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


class CompletionChunks(ChunkMaker[StoredEvent | Delta]):
    """The chunks of one stream: the role, the pieces of the text, and why it ends."""

    def __init__(self, run: Run, *, with_usage: bool, model: str = "") -> None:
        self.run, self.name, self._with_usage, self._model = run, run.id, with_usage, model
        self._begun = False
        self._sent: dict[str, str] = {}
        self._end: RunEnded | None = None
        self._calls: list[dict[str, Any]] = []

    def of(self, event: StoredEvent | Delta, *, now: datetime) -> Iterator[Chunk]:
        delta = event if isinstance(event, Delta) else None
        match event.event if isinstance(event, StoredEvent) else None:
            case DeltaStreamed(delta=stored):
                delta = stored
            case MessageAdded(message=Message() as message):
                sent = self._sent.pop(message.id, "")
                text = "\n".join(texts_of(message))
                # A text that did not come in pieces comes whole.
                yield from self._text(text.removeprefix(sent) if text.startswith(sent) else "")
                self._calls += calls_shape(message)
            case RunEnded() as end:
                self._end = end
        if delta is not None and delta.kind == "text":
            self._sent[delta.message_id] = self._sent.get(delta.message_id, "") + delta.text
            yield from self._text(delta.text)

    def end(self) -> Iterator[Chunk]:
        if self._end is None:
            return
        if self._end.failure is not None and self._end.stop_reason in FAILED_REASONS:
            yield self._end.failure
            return
        yield from self._begin()
        if self._calls:
            yield self._chunk({"tool_calls": [{"index": place, **one} for place, one in enumerate(self._calls)]})
        yield self._chunk({}, "tool_calls" if self._calls else finish_reason(self._end.stop_reason))
        if self._with_usage:
            usage = usage_shape(self._end.usage)
            yield _head(self.run, "chat.completion.chunk", self._model) | {"choices": [], "usage": usage}

    def broken(self, failure: Failure) -> Iterator[Chunk]:
        yield failure

    def ping(self, now: datetime) -> dict[str, Any]:
        """An empty piece, which keeps a quiet connection open."""
        return self._chunk({})

    def error(self, failure: Failure) -> dict[str, Any]:
        return {"error": {"type": failure.kind, "message": failure.message, "code": None, "param": None}}

    def _text(self, text: str) -> Iterator[Chunk]:
        """The chunk of a piece of the answer."""
        if text:
            yield from self._begin()
            yield self._chunk({"content": text})

    def _begin(self) -> Iterator[Chunk]:
        """The chunk of the role, once."""
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""})

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _head(self.run, "chat.completion.chunk", self._model) | {"choices": [choice]}


def _head(run: Run, kind: str, model: str) -> dict[str, Any]:
    """The first fields of an answer or a chunk; `kind` is the name that OpenAI's API has for the one or the other."""
    created = int(run.created_at.timestamp())
    return {"id": f"chatcmpl-{run.id}", "object": kind, "created": created, "model": model or run.key.agent_id}


def texts_of(message: Message) -> Sequence[str]:
    """What the agent says in a message of its run, by text or by `send_message`."""
    if message.step_id is None or message.kind != "message" or message.role != "assistant":
        return ()
    return [str(shape["content"]) for shape in wire_messages(message, _DISPLAY)]


def calls_shape(message: Message) -> list[dict[str, Any]]:
    """The calls in a message that the caller has to run."""
    return [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.own_arguments}}
        for call in message.calls
        if call.awaits == "client"
    ]


def finish_reason(reason: StopReason) -> str:
    """OpenAI's word for why an answer ends."""
    return "length" if reason in ("max_tokens_exceeded", "max_steps") else "stop"


def usage_shape(usage: Usage) -> dict[str, Any]:
    """The tokens of all model calls of the run."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
