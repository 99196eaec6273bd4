"""The answers of OpenAI's responses API: a whole one, and the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from perdure.core.events import Delta, StoredEvent
from perdure.core.messages import Message
from perdure.core.runs import FAILED_REASONS, Failure, Run, StopReason, Usage
from perdure.engine.run.accept import Accepted
from perdure.features.openai_front.answers import RunChunks, texts_of
from perdure.features.openai_front.response_bodies import MESSAGE, RESPONSE
from perdure.library.messages.reply import Reply
from perdure.server.wire.base import nulls
from perdure.server.wire.chunks import Chunk
from perdure.server.wire.shapes import Object


class Response(TypedDict):
    """The answer to a request, as far as it has come."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "failed", "in_progress", "incomplete"]
    model: str
    output: list[Object]
    usage: NotRequired[Object]


class DeletedResponse(TypedDict):
    id: str
    object: Literal["response"]
    deleted: bool


class ItemList(TypedDict):
    object: Literal["list"]
    data: list[Object]
    first_id: str | None
    last_id: str | None
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """What an answer shows before anything is said.

    Args:
        id: of the run that makes it, or of the message that it answers, by which it is found again.
        echo: what it shows of its request.
    """

    id: str
    created: int
    conversation: str = ""
    echo: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_run(cls, run: Run) -> ResponseHead:
        """The head of a run's answer."""
        echo = {"model": run.key.agent_id, **run.options.form.get("response", {})}
        return cls(id=run.id, created=int(run.created_at.timestamp()), conversation=run.conversation_id, echo=echo)

    def shape(
        self,
        output: Sequence[Mapping[str, Any]] = (),
        *,
        reason: StopReason | None = None,
        failure: Failure | None = None,
        usage: Usage | None = None,
    ) -> dict[str, Any]:
        """The answer. `reason`: why it has ended; None: it has not."""
        failed = reason in FAILED_REASONS and reason != "max_tokens_exceeded"
        cut = reason in ("max_tokens_exceeded", "max_steps")
        error = {"code": "server_error", "message": "" if failure is None else failure.message} if failed else None
        return {
            "id": f"{RESPONSE}{self.id.partition('-')[2]}",
            "object": "response",
            "created_at": self.created,
            "status": "in_progress" if reason is None else "failed" if failed else "incomplete" if cut else "completed",
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            **{"tool_choice": "auto", "tools": [], "metadata": {}, "store": True, "background": False},
            **{"text": {"format": {"type": "text"}}, "reasoning": {"effort": None, "summary": None}},
            **nulls(
                "access_programs", "instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p"
            ),
            **{"parallel_tool_calls": True, "truncation": "disabled"},
            "conversation": {"id": self.conversation} if self.conversation else None,
            **self.echo,
            "output": list(output),
            **({} if usage is None else {"usage": _usage_shape(usage)}),
        }

    def of_reply(self, reply: Reply) -> dict[str, Any]:
        """The whole answer of an agent."""
        output = output_of(reply.messages)
        return self.shape(output, reason=reply.stop_reason, failure=reply.failure, usage=reply.usage)


def _usage_shape(usage: Usage) -> dict[str, Any]:
    cached = {"cached_tokens": usage.cached_input_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": cached,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def output_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The items that messages of a run are in its answer."""
    return [item for message in messages for item in (*_texts(message), *_calls(message))]


def input_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The items that a run was asked by."""
    items: list[dict[str, Any]] = []
    for one in messages:
        id_ = one.id.partition("-")[2]
        if one.role == "user" and one.kind == "message":
            content = [{"type": "input_text", "text": one.text}]
            items.append({"id": f"{MESSAGE}{id_}", "type": "message", "status": "completed", "role": "user"})
            items[-1]["content"] = content
    return items


def _texts(message: Message) -> Iterator[dict[str, Any]]:
    if text := "\n".join(texts_of(message)):
        yield text_item(message.id, text)


def text_item(message_id: str, text: str | None, *, status: str = "completed") -> dict[str, Any]:
    """The item of a text; None: it has not begun."""
    content = [] if text is None else [_text_part(text)]
    id_ = f"{MESSAGE}{message_id.partition('-')[2]}"
    return {"id": id_, "type": "message", "status": status, "role": "assistant", "content": content}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _calls(message: Message) -> Iterator[dict[str, Any]]:
    for place, call in enumerate(message.calls):
        if call.awaits == "client":
            yield call_item(f"{message.id.partition('-')[2]}_{place}", call.call_id, call.name, call.own_arguments)


def call_item(id_: str, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """The item of a call."""
    of_call = {"call_id": call_id, "name": name, "arguments": arguments}
    return {"id": f"fc_{id_}", "type": "function_call", "status": "completed", **of_call}


class ResponseParts:
    """The events of one answer, each with its name and number, from its pieces."""

    def __init__(self, head: ResponseHead) -> None:
        self.head = head
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._open: tuple[str, list[str]] | None = None  # the message whose text comes in pieces, and these

    def begin(self) -> Iterator[dict[str, Any]]:
        """The events before all others, once."""
        if not self._number:
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=self.head.shape())

    def piece(self, message_id: str, text: str) -> Iterator[dict[str, Any]]:
        """The events of a piece of a message's text."""
        if self._open is not None and self._open[0] != message_id:
            yield from self.close()
        if self._open is None:
            self._open = message_id, []
            item = text_item(message_id, None, status="in_progress")
            yield self._event("response.output_item.added", output_index=len(self._output), item=item)
            yield self._event("response.content_part.added", **self._of(item), part=_text_part(""))
        self._open[1].append(text)
        item = text_item(message_id, None)
        yield self._event("response.output_text.delta", **self._of(item), delta=text, logprobs=[])

    def close(self) -> Iterator[dict[str, Any]]:
        """The events at the end of a text, if one has begun."""
        if self._open is None:
            return
        text = "".join(self._open[1])
        item = text_item(self._open[0], text)
        self._open = None
        yield self._event("response.output_text.done", **self._of(item), text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._of(item), part=_text_part(text))
        yield from self._done(item)

    def call(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a whole call."""
        begun, of = {**item, "arguments": "", "status": "in_progress"}, {"item_id": item["id"]}
        of |= {"output_index": len(self._output)}
        arguments = item["arguments"]
        yield self._event("response.output_item.added", output_index=len(self._output), item=begun)
        yield self._event("response.function_call_arguments.delta", **of, delta=arguments)
        yield self._event("response.function_call_arguments.done", **of, name=item["name"], arguments=arguments)
        yield from self._done(item)

    def end(
        self, reason: StopReason, *, failure: Failure | None = None, usage: Usage | None = None
    ) -> Iterator[dict[str, Any]]:
        """The last events."""
        yield from self.close()
        shape = self.head.shape(self._output, reason=reason, failure=failure, usage=usage)
        yield self._event(f"response.{shape['status']}", response=shape)

    def ping(self) -> dict[str, Any]:
        """The state once more, which keeps a quiet connection open."""
        return self._event("response.in_progress", response=self.head.shape())

    def _done(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The event at the end of an item."""
        yield self._event("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)

    def _of(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """What an event says about the text of the item that comes next."""
        return {"item_id": item["id"], "output_index": len(self._output), "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}


class ResponseEvents(RunChunks):
    """The events of the stream of a run."""

    named = True

    def __init__(self, accepted: Accepted) -> None:
        super().__init__(accepted)
        self._parts = ResponseParts(ResponseHead.of_run(accepted.run))

    def of(self, event: StoredEvent | Delta, *, now: datetime) -> Iterator[Chunk]:
        yield from self._parts.begin()
        yield from super().of(event, now=now)

    def _piece(self, message_id: str, text: str) -> Iterator[Chunk]:
        yield from self._parts.piece(message_id, text)

    def _message(self, message: Message, text: str) -> Iterator[Chunk]:
        calls = list(_calls(message))
        if calls or text:
            yield from self._parts.close()
        for item in calls:
            yield from self._parts.call(item)

    def end(self) -> Iterator[Chunk]:
        if (end := self._end) is not None:
            yield from self._parts.end(end.stop_reason, failure=end.failure, usage=end.usage)

    def broken(self, failure: Failure) -> Iterator[Chunk]:
        yield from self._parts.end("error", failure=failure)

    def ping(self, now: datetime) -> dict[str, Any]:
        return self._parts.ping()
