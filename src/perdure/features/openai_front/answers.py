"""The answers of OpenAI's chat API: a whole one, and the chunks of a stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from perdure.core.events import Delta, DeltaStreamed, MessageAdded, RunEnded, StoredEvent
from perdure.core.messages import Message
from perdure.core.runs import FAILED_REASONS, NO_USAGE, Failure, Run, StopReason, Usage
from perdure.engine.run.accept import Accepted
from perdure.library.messages.reply import Reply
from perdure.server.wire.chunks import Chunk, ChunkMaker
from perdure.server.wire.http import json_bytes
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


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, of an agent or of a model alone; `calls` as `calls_shape` has them."""

    id: str
    model: str
    created: int
    text: str = ""
    usage: Usage = NO_USAGE
    calls: Sequence[Mapping[str, Any]] = ()
    reason: str = "stop"
    logprobs: Mapping[str, Any] | None = None

    @classmethod
    def of_run(cls, run: Run, model: str = "") -> Answer:
        """The answer of a run before anything is said; `model` is its name there, by default the agent's id."""
        return cls(f"chatcmpl-{run.id}", model or run.key.agent_id, int(run.created_at.timestamp()))

    def ended(self, reason: StopReason, usage: Usage, calls: Sequence[Mapping[str, Any]], **fields: Any) -> Answer:
        """The answer at its end."""
        cut = reason in ("max_tokens_exceeded", "max_steps")
        why = "tool_calls" if calls else "length" if cut else "stop"
        return replace(self, usage=usage, calls=calls, reason=why, **fields)

    @property
    def shape(self) -> dict[str, Any]:
        """The whole answer."""
        calls = {"tool_calls": list(self.calls)} if self.calls else {}
        message = {"role": "assistant", "content": self.text, "refusal": None, **calls}
        choice = {"index": 0, "message": message, "logprobs": self.logprobs, "finish_reason": self.reason}
        return self._head("chat.completion") | {"choices": [choice], "usage": _usage_shape(self.usage)}

    def chunk(self, delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        """A chunk of its stream."""
        choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": reason}
        return self._head("chat.completion.chunk") | {"choices": [choice]}

    def last_chunks(self, *, with_usage: bool | None) -> Iterator[dict[str, Any]]:
        """The chunks behind those of its text."""
        if self.calls:
            yield self.chunk({"tool_calls": [{"index": place, **one} for place, one in enumerate(self.calls)]})
        yield self.chunk({}, self.reason)
        if with_usage:
            yield self._head("chat.completion.chunk") | {"choices": [], "usage": _usage_shape(self.usage)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def data_line(shape: Mapping[str, Any]) -> bytes:
    """A shape as an event of a stream."""
    return b"data: %b\n\n" % json_bytes(shape)


def completion_shape(reply: Reply, run: Run, model: str = "") -> dict[str, Any]:
    """The whole answer of an agent."""
    texts = [text for message in reply.messages for text in texts_of(message)]
    calls = [call for message in reply.messages for call in calls_shape(message)]
    answer = Answer.of_run(run, model).ended(reply.stop_reason, reply.usage, calls, logprobs=reply.logprobs)
    return replace(answer, text="\n".join(texts)).shape


class RunChunks(ChunkMaker[StoredEvent | Delta]):
    """The chunks of a stream of a run: of each text as it is made, and of each whole message."""

    def __init__(self, accepted: Accepted) -> None:
        self.run, self.name = accepted.run, accepted.run.id
        self._has_all = not accepted.repeated  # who joins a run under way has not seen all pieces of a text
        self._sent: dict[str, str] = {}
        self._end: RunEnded | None = None

    def of(self, event: StoredEvent | Delta, *, now: datetime) -> Iterator[Chunk]:
        delta = event if isinstance(event, Delta) and self._has_all else None
        match event.event if isinstance(event, StoredEvent) else None:
            case DeltaStreamed(delta=stored):
                delta = stored
            case MessageAdded(message=Message() as message):
                sent = self._sent.pop(message.id, "")
                text = "\n".join(texts_of(message))
                # A text that did not come in pieces comes whole.
                if rest := text.removeprefix(sent) if text.startswith(sent) else "":
                    yield from self._piece(message.id, rest)
                yield from self._message(message, text)
            case RunEnded() as end:
                self._end = end
        if delta is not None and delta.kind == "text" and delta.text:
            self._sent[delta.message_id] = self._sent.get(delta.message_id, "") + delta.text
            yield from self._piece(delta.message_id, delta.text)

    @abstractmethod
    def _piece(self, message_id: str, text: str) -> Iterator[Chunk]:
        """The chunks of a piece of a message's text."""

    @abstractmethod
    def _message(self, message: Message, text: str) -> Iterator[Chunk]:
        """The chunks at the end of a message, behind those of its text."""


class CompletionChunks(RunChunks):
    """The chunks of one stream: the role, the pieces of the text, and why it ends."""

    def __init__(self, accepted: Accepted, *, with_usage: bool | None, model: str = "") -> None:
        super().__init__(accepted)
        self._answer, self._with_usage = Answer.of_run(accepted.run, model), with_usage
        self._begun = False
        self._calls: list[dict[str, Any]] = []

    def _piece(self, message_id: str, text: str) -> Iterator[Chunk]:
        yield from self._begin()
        yield self._answer.chunk({"content": text})

    def _message(self, message: Message, text: str) -> Iterator[Chunk]:
        self._calls += calls_shape(message)
        yield from ()

    def _begin(self) -> Iterator[Chunk]:
        """The chunk of the role, once."""
        if not self._begun:
            self._begun = True
            yield self._answer.chunk({"role": "assistant", "content": ""})

    def end(self) -> Iterator[Chunk]:
        if (end := self._end) is None:
            return
        if end.failure is not None and end.stop_reason in FAILED_REASONS:
            yield end.failure
            return
        yield from self._begin()
        answer = self._answer.ended(end.stop_reason, end.usage, self._calls)
        yield from answer.last_chunks(with_usage=self._with_usage)

    def broken(self, failure: Failure) -> Iterator[Chunk]:
        yield failure

    def ping(self, now: datetime) -> dict[str, Any]:
        """An empty piece, which keeps a quiet connection open."""
        return self._answer.chunk({})

    def error(self, failure: Failure) -> dict[str, Any]:
        return {"error": {"type": failure.kind, "message": failure.message, "code": None, "param": None}}


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


def _usage_shape(usage: Usage) -> dict[str, Any]:
    """The tokens of all model calls of the run."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
