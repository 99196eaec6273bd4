"""OpenAI's responses API: the body of a request, the whole answer, and the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import PREFIXES, MessageId, RunId, is_id
from perdure.core.messages import Message
from perdure.core.runs import FAILED_REASONS, Failure, Run, RunOptions, StopReason, Usage
from perdure.core.tools.answers import Answer, ToolReturn
from perdure.engine.records.run_request import NewMessage
from perdure.engine.run.accept import Accepted
from perdure.features.openai_front.answers import RunChunks, texts_of
from perdure.features.openai_front.bodies import AnswerOptions, response_format
from perdure.features.openai_front.values import Anchor, ChatText
from perdure.library.messages.client_tools import client_tools_of
from perdure.server.wire.base import WireRequest, nulls, parse_parts, parse_return
from perdure.server.wire.chunks import Chunk
from perdure.server.wire.fields import JsonObject, MaxItems, Name
from perdure.server.wire.shapes import Object

RESPONSE, MESSAGE = "resp_", "msg_"
_ECHOED = (
    *("instructions", "metadata", "previous_response_id", "temperature", "top_p", "max_output_tokens", "user"),
    "parallel_tool_calls",
)
"""Fields of a request that its answer shows again."""
_MADE = ("function_call", "reasoning", "item_reference")
"""Kinds of items of earlier answers that say nothing by themselves."""


class TextForm(WireRequest):
    """The form of the answer."""

    format: JsonObject | None = None
    verbosity: str | None = None


class ResponseRequest(AnswerOptions):
    """A request to an agent. `conversation` is a conversation's id or any name of one; with `previous_response_id` the
    request goes on behind that answer."""

    model: Annotated[str, Field(description="The name or id of an agent.")]
    input: str | Annotated[list[JsonObject], MaxItems("imports_per_request")]
    instructions: str | None = None
    previous_response_id: Name | None = None
    conversation: str | JsonObject | None = None
    store: bool | None = None
    tools: Annotated[list[JsonObject], MaxItems("tools_per_agent")] | None = None
    text: TextForm | None = None
    reasoning: JsonObject | None = None
    max_output_tokens: int | None = None
    truncation: str | None = None

    @property
    def tools_offered(self) -> tuple[Mapping[str, Any], ...] | None:
        """The caller's tools, as a run stores them; None: there are none. Raises: InvalidInput."""
        found = [one for one in self.tools or () if one.get("type", "function") == "function"]
        if other := [one for one in self.tools or () if one not in found]:
            kind = other[0].get("type")
            raise InvalidInput(f"tools: {kind!r:.60} is not a function, and an agent has tools of its own")
        names = ("name", "description", "parameters")
        shapes = [{name: one[name] for name in names if one.get(name) is not None} for one in found]
        return None if self.tool_choice == "none" else client_tools_of(shapes).shapes or None

    def anchor(self, name: str | None) -> Anchor:
        """What it names of its conversation; first `name`. Raises: InvalidInput: two things; NotFound: no answer has
        the id."""
        named = self.conversation if isinstance(self.conversation, str) else (self.conversation or {}).get("id")
        if self.previous_response_id and named:
            raise InvalidInput("previous_response_id and conversation: give one of them")
        if self.previous_response_id and not name:
            return Anchor(behind=run_id_of(self.previous_response_id))
        return super().anchor(name or (str(named) if named else None))

    @property
    def run_options(self) -> RunOptions:
        """What the request sets for the answer, and what the answer shows of it. Raises: InvalidInput."""
        form = self.text.format if self.text is not None else None
        if form is not None and form.get("type") == "json_schema":
            form = {"type": "json_schema", "json_schema": {k: v for k, v in form.items() if k != "type"}}
        verbosity = self.text.verbosity if self.text is not None else None
        settings = self.settings(
            self.tools_offered or (),
            max_output_tokens=self.max_output_tokens,
            response_format=response_format(form),
            reasoning_effort=(self.reasoning or {}).get("effort"),
            extra={"verbosity": verbosity} if verbosity else None,
        )
        return RunOptions(settings=settings, form={"response": self._echo()})

    def _echo(self) -> dict[str, Any]:
        """What a `Response` shows of the request."""
        echo = {name: value for name in _ECHOED if (value := getattr(self, name)) is not None}
        choice = self.tool_choice if isinstance(self.tool_choice, str) else None
        if self.tools:
            shown = [{"parameters": None, "strict": None, "type": "function", **one} for one in self.tools]
            echo |= {"tools": shown, "tool_choice": choice or "auto"}
        if self.text is not None:
            own = {"format": self.text.format, "verbosity": self.text.verbosity}
            echo["text"] = {"format": {"type": "text"}} | {name: one for name, one in own.items() if one is not None}
        if self.reasoning is not None:
            echo["reasoning"] = {"effort": None, "summary": None} | self.reasoning
        return {**echo, "model": self.model, "store": self.store is not False}

    @property
    def items(self) -> Sequence[Mapping[str, Any]]:
        """The items of the input."""
        return [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input

    @property
    def references(self) -> Sequence[MessageId]:
        """The messages of earlier answers that it names by their ids."""
        names = [str(one.get("id", "")) for one in self.items if one.get("type") == "item_reference"]
        return [message_id_of(one) for one in names if one.startswith(MESSAGE)]

    def texts(self, known: Mapping[MessageId, str]) -> Sequence[ChatText]:
        """What users and assistants say in it. `known`: the texts of `references`."""
        return list(self._texts(known))

    def _texts(self, known: Mapping[MessageId, str]) -> Iterator[ChatText]:
        for one in self.items:
            if one.get("type") == "item_reference":
                yield ChatText("assistant", known.get(message_id_of(str(one.get("id", ""))), ""))
            elif one.get("type") in _MADE:
                yield ChatText("assistant", "")
            elif (role := one.get("role")) in ("user", "assistant"):
                yield ChatText(role, _text_of(one.get("content")) or ("[image]" if one.get("content") else ""))

    @property
    def system(self) -> str:
        """What the program says to the model beside the chat."""
        said = [_text_of(one.get("content")) for one in self.items if one.get("role") in ("system", "developer")]
        return "\n\n".join(filter(None, (self.instructions, *said)))

    def new_contents(self) -> tuple[Sequence[NewMessage], Sequence[Answer]]:
        """The messages of users behind the last answer, and what the caller's tools returned. Raises: InvalidInput,
        NotSupported."""
        new: list[NewMessage] = []
        answers: list[Answer] = []
        for index, one in enumerate(self.items):
            kind, where = one.get("type", "message"), f"input.{index}.content"
            if kind == "function_call_output":
                text, images = parse_return(_parts(one.get("output") or ""), where)
                answers.append(ToolReturn(str(one.get("call_id") or ""), text, images=images))
            elif kind in _MADE or one.get("role") == "assistant":
                new, answers = [], []
            elif kind != "message" or one.get("role") not in ("user", "system", "developer"):
                raise InvalidInput(f"input.{index}: an item of the type {kind!r:.60} is not taken")
            elif one["role"] == "user":
                new.append(NewMessage(parse_parts(_parts(one.get("content") or ""), where)))
        return new, answers


def _text_of(content: Any) -> str:
    """The texts of a message's content, in lines."""
    if isinstance(content, str):
        return content
    parts = _checked(content)
    return "\n".join(one["text"] for one in parts if isinstance(one.get("text"), str))


def _parts(content: Any) -> str | Sequence[Mapping[str, Any]]:
    """A message's content as the chat API has it."""
    if isinstance(content, str):
        return content
    return [_part(one) for one in _checked(content)]


def _checked(content: Any) -> Sequence[Mapping[str, Any]]:
    """The parts of an item's content. Raises: InvalidInput: it is neither a text nor a list of parts."""
    if content is not None and not (isinstance(content, list) and all(isinstance(one, Mapping) for one in content)):
        raise InvalidInput(f"input: a content is {content!r:.80}: give a text or a list of parts")
    return content or ()


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    match part.get("type"):
        case "input_text" | "output_text":
            return {"type": "text", "text": part.get("text")}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": part.get("image_url"), "detail": part.get("detail")}}
        case _:
            return part


def run_id_of(response_id: str) -> RunId:
    """The run of an answer. Raises: NotFound: no answer has such an id."""
    run_id = f"{PREFIXES['run']}-{response_id.removeprefix(RESPONSE)}"
    if not response_id.startswith(RESPONSE) or not is_id("run", run_id):
        raise NotFound("response", response_id)
    return RunId(run_id)


def message_id_of(item_id: str) -> MessageId:
    """The message of an item."""
    return MessageId(f"{PREFIXES['message']}-{item_id.removeprefix(MESSAGE)}")


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


def response_shape(
    run: Run,
    output: Sequence[Mapping[str, Any]] = (),
    *,
    reason: StopReason | None = None,
    failure: Failure | None = None,
    usage: Usage | None = None,
) -> dict[str, Any]:
    """The answer. `reason`: why the run has ended; None: it has not."""
    failed = reason in FAILED_REASONS and reason != "max_tokens_exceeded"
    cut = reason in ("max_tokens_exceeded", "max_steps")
    error = {"code": "server_error", "message": "" if failure is None else failure.message} if failed else None
    return {
        "id": f"{RESPONSE}{run.id.partition('-')[2]}",
        "object": "response",
        "created_at": int(run.created_at.timestamp()),
        "status": "in_progress" if reason is None else "failed" if failed else "incomplete" if cut else "completed",
        "error": error,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        **{"model": run.key.agent_id, "tool_choice": "auto", "tools": [], "metadata": {}, "store": True},
        **{"text": {"format": {"type": "text"}}, "reasoning": {"effort": None, "summary": None}},
        **nulls("access_programs", "instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p"),
        **{"parallel_tool_calls": True, "truncation": "disabled"},
        "conversation": {"id": run.conversation_id} if run.conversation_id else None,
        **run.options.form.get("response", {}),
        "output": list(output),
        **({} if usage is None else {"usage": _usage_shape(usage)}),
    }


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


def _texts(message: Message) -> Iterator[dict[str, Any]]:
    if text := "\n".join(texts_of(message)):
        yield _text_item(message.id, text)


def _text_item(message_id: str, text: str | None, *, status: str = "completed") -> dict[str, Any]:
    """The item of a text; None: it has not begun."""
    content = [] if text is None else [_text_part(text)]
    id_ = f"{MESSAGE}{message_id.partition('-')[2]}"
    return {"id": id_, "type": "message", "status": status, "role": "assistant", "content": content}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _calls(message: Message) -> Iterator[dict[str, Any]]:
    for place, call in enumerate(message.calls):
        if call.awaits == "client":
            yield {
                "id": f"fc_{message.id.partition('-')[2]}_{place}",
                "type": "function_call",
                "status": "completed",
                "call_id": call.call_id,
                "name": call.name,
                "arguments": call.own_arguments,
            }


class ResponseEvents(RunChunks):
    """The events of one stream, each with its name and number."""

    named = True

    def __init__(self, accepted: Accepted) -> None:
        super().__init__(accepted)
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._open: tuple[str, list[str]] | None = None  # the message whose text comes in pieces, and these

    def of(self, event: StoredEvent | Delta, *, now: datetime) -> Iterator[Chunk]:
        if not self._number:
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=response_shape(self.run))
        yield from super().of(event, now=now)

    def _piece(self, message_id: str, text: str) -> Iterator[Chunk]:
        if self._open is not None and self._open[0] != message_id:
            yield from self._close()
        if self._open is None:
            self._open = message_id, []
            item = _text_item(message_id, None, status="in_progress")
            yield self._event("response.output_item.added", output_index=len(self._output), item=item)
            yield self._event("response.content_part.added", **self._of(item), part=_text_part(""))
        self._open[1].append(text)
        item = _text_item(message_id, None)
        yield self._event("response.output_text.delta", **self._of(item), delta=text, logprobs=[])

    def _message(self, message: Message, text: str) -> Iterator[Chunk]:
        if self._open is not None and self._open[0] == message.id:
            yield from self._close()
        for item in _calls(message):
            begun, of = {**item, "arguments": "", "status": "in_progress"}, {"item_id": item["id"]}
            of |= {"output_index": len(self._output)}
            arguments = item["arguments"]
            yield self._event("response.output_item.added", output_index=len(self._output), item=begun)
            yield self._event("response.function_call_arguments.delta", **of, delta=arguments)
            yield self._event("response.function_call_arguments.done", **of, name=item["name"], arguments=arguments)
            yield from self._done(item)

    def _close(self) -> Iterator[Chunk]:
        """The events at the end of a text."""
        assert self._open is not None
        text = "".join(self._open[1])
        item = _text_item(self._open[0], text)
        self._open = None
        yield self._event("response.output_text.done", **self._of(item), text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._of(item), part=_text_part(text))
        yield from self._done(item)

    def _done(self, item: dict[str, Any]) -> Iterator[Chunk]:
        """The event at the end of an item."""
        yield self._event("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)

    def _of(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """What an event says about the text of the item that comes next."""
        return {"item_id": item["id"], "output_index": len(self._output), "content_index": 0}

    def end(self) -> Iterator[Chunk]:
        if (end := self._end) is None:
            return
        if self._open is not None:
            yield from self._close()
        shape = response_shape(self.run, self._output, reason=end.stop_reason, failure=end.failure, usage=end.usage)
        yield self._event(f"response.{shape['status']}", response=shape)

    def whole(self, message_id: str, text: str, usage: Usage) -> Iterator[Chunk]:
        """All events of an answer that is there already."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=response_shape(self.run))
        yield from self._piece(message_id, text)
        yield from self._close()
        shape = response_shape(self.run, self._output, reason="end_turn", usage=usage)
        yield self._event("response.completed", response=shape)

    def broken(self, failure: Failure) -> Iterator[Chunk]:
        shape = response_shape(self.run, self._output, reason="error", failure=failure)
        yield self._event("response.failed", response=shape)

    def ping(self, now: datetime) -> dict[str, Any]:
        """The state once more, which keeps a quiet connection open."""
        return self._event("response.in_progress", response=response_shape(self.run))

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}
