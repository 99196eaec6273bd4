"""How OpenAI's responses API writes an answer: whole, and as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from perdure.core.messages import Message, ToolCall
from perdure.core.runs import Run, Usage
from perdure.features.openai_front.answers import AnswerEnd, AnswerPart, AnswerWriter
from perdure.features.openai_front.response_bodies import MESSAGE, RESPONSE
from perdure.server.wire.base import nulls
from perdure.server.wire.chunks import Chunk
from perdure.server.wire.shapes import Object

_UNENDED = AnswerEnd(None)
_DEFAULTS: Mapping[str, Any] = {
    **{"tool_choice": "auto", "tools": [], "metadata": {}, "store": True, "background": False},
    **{"text": {"format": {"type": "text"}}, "reasoning": {"effort": None, "summary": None}},
    **nulls("access_programs", "instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p"),
    **{"parallel_tool_calls": True, "truncation": "disabled"},
}
"""What an answer shows of its request, where that does not say it."""


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


class ResponseWriter(AnswerWriter):
    """Writes an answer in the form of OpenAI's responses API. `id_`: of its run, or of the message that it answers, for
    finding it again; `echo`: the part of the request that it repeats."""

    named = True

    def __init__(self, id_: str, created: datetime, conversation: str, echo: Mapping[str, Any]) -> None:
        self._head = {
            "id": f"{RESPONSE}{id_.partition('-')[2]}",
            "object": "response",
            "created_at": int(created.timestamp()),
            **_DEFAULTS,
            "conversation": {"id": conversation} if conversation else None,
            **echo,
        }
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._open: tuple[str, list[str]] | None = None  # the id of a text that comes in pieces, and these

    @classmethod
    def of_run(cls, run: Run) -> ResponseWriter:
        """The writer of a run's answer."""
        echo = {"model": run.key.agent_id, **run.options.form.get("response", {})}
        return cls(run.id, run.created_at, run.conversation_id, echo)

    def whole(self, items: Iterable[AnswerPart], outcome: AnswerEnd) -> dict[str, Any]:
        return self._shape([_item(id_, said) for id_, said in items], outcome)

    def begin(self) -> Iterator[dict[str, Any]]:
        if not self._number:
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=self._shape())

    def piece(self, id_: str, text: str) -> Iterator[dict[str, Any]]:
        if self._open is not None and self._open[0] != id_:
            yield from self._close()
        if self._open is None:
            self._open = id_, []
            item = {**_item(id_, ""), "status": "in_progress", "content": []}
            yield self._event("response.output_item.added", output_index=len(self._output), item=item)
            yield self._event("response.content_part.added", **self._text_place(item), part=_text_part(""))
        self._open[1].append(text)
        yield self._event("response.output_text.delta", **self._text_place(_item(id_, "")), delta=text, logprobs=[])

    def call(self, id_: str, call: ToolCall) -> Iterator[dict[str, Any]]:
        yield from self._close()
        item, place = _item(id_, call), len(self._output)
        begun, of = {**item, "arguments": "", "status": "in_progress"}, {"item_id": item["id"], "output_index": place}
        yield self._event("response.output_item.added", output_index=place, item=begun)
        yield self._event("response.function_call_arguments.delta", **of, delta=call.arguments)
        yield self._event("response.function_call_arguments.done", **of, name=call.name, arguments=call.arguments)
        yield from self._done(item)

    def end(self, outcome: AnswerEnd) -> Iterator[Chunk]:
        yield from self._close()
        shape = self._shape(self._output, outcome)
        yield self._event(f"response.{shape['status']}", response=shape)

    def ping(self) -> dict[str, Any]:
        return self._event("response.in_progress", response=self._shape())

    def _shape(self, output: Sequence[Mapping[str, Any]] = (), outcome: AnswerEnd = _UNENDED) -> dict[str, Any]:
        ended = "failed" if outcome.has_failed else "incomplete" if outcome.is_cut else "completed"
        message = "" if outcome.failure is None else outcome.failure.message
        return {
            **self._head,
            "status": "in_progress" if outcome.reason is None else ended,
            "error": {"code": "server_error", "message": message} if outcome.has_failed else None,
            "incomplete_details": {"reason": "max_output_tokens"} if outcome.is_cut else None,
            "output": list(output),
            **({} if outcome.usage is None else {"usage": _usage_shape(outcome.usage)}),
        }

    def _close(self) -> Iterator[dict[str, Any]]:
        """The events at the end of a text, if one has begun."""
        if self._open is None:
            return
        text = "".join(self._open[1])
        item = _item(self._open[0], text)
        self._open = None
        yield self._event("response.output_text.done", **self._text_place(item), text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._text_place(item), part=_text_part(text))
        yield from self._done(item)

    def _done(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The event at the end of an item."""
        yield self._event("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)

    def _text_place(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an event about the text of the next item."""
        return {"item_id": item["id"], "output_index": len(self._output), "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}


def _item(id_: str, said: str | ToolCall) -> dict[str, Any]:
    """A text or a call as an item of the output."""
    if isinstance(said, str):
        shape = {"id": f"{MESSAGE}{id_}", "type": "message", "role": "assistant", "content": [_text_part(said)]}
    else:
        call = {"call_id": said.call_id, "name": said.name, "arguments": said.arguments}
        shape = {"id": f"fc_{id_}", "type": "function_call", **call}
    return {**shape, "status": "completed"}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def input_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The items that a run was asked by."""
    shape = {"type": "message", "status": "completed", "role": "user"}
    return [
        {**shape, "id": f"{MESSAGE}{one.id.partition('-')[2]}", "content": [{"type": "input_text", "text": one.text}]}
        for one in messages
        if one.role == "user" and one.kind == "message"
    ]


def _usage_shape(usage: Usage) -> dict[str, Any]:
    cached = {"cached_tokens": usage.cached_input_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": cached,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
