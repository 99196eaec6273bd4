"""The models that can be used, what one is asked outside an agent's log, and agents behind OpenAI's chat API: the
body, the answer, and the chunks of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import StreamingResponse

from perdure.core.errors import InvalidInput
from perdure.core.events import Delta, DeltaStreamed, MessageAdded, RunEnded, StoredEvent
from perdure.core.ids import AgentId
from perdure.core.messages import Message
from perdure.core.runs import FAILED_REASONS, Failure, Run, StopReason, Usage
from perdure.core.tools.answers import Answer, ToolReturn
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.library.messages.client_tools import client_tools_of
from perdure.library.messages.reply import Reply
from perdure.server.routes.messages import reply_answer
from perdure.server.wire.answers import Completion, WireGenerated
from perdure.server.wire.base import Part, WireRequest, parse_parts, parse_return
from perdure.server.wire.chunks import Chunk, ChunkMaker
from perdure.server.wire.fields import AgentIdIn, Filled, Items, JsonObject, MaxItems, Name, keywords
from perdure.server.wire.http import Json, Library, Router, forget_body, while_connected
from perdure.server.wire.input import SendRequest
from perdure.server.wire.messages import Display, wire_messages
from perdure.server.wire.models import WireModel, embedding_model_shape, facts_of, handles_of, model_shape
from perdure.server.wire.runs import RequestUsage
from perdure.server.wire.sse import Streams

_DISPLAY = Display(types=frozenset({"assistant_message"}))


class CompletionMessage(WireRequest):
    """One message. `content` may be missing beside a tool call of an earlier answer."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Items[Part] | None = None
    name: str | None = None
    tool_call_id: Name | None = None


class CompletionFunction(WireRequest):
    """A function of the caller, as `client_tools` has it."""

    name: Filled
    description: str = ""
    parameters: JsonObject | None = None


class CompletionTool(WireRequest):
    """A tool that the caller runs: its calls are in the answer, and their results in the next request."""

    type: Literal["function"] = "function"
    function: CompletionFunction


class StreamOptions(WireRequest):
    """What a stream has besides its pieces."""

    include_usage: bool = False


class CompletionRequest(WireRequest):
    """A request to an agent in OpenAI's shape. Only what users said since the last answer is sent, and what the
    caller's tools returned: the agent knows the rest, has its own instructions, and calls its own tools itself."""

    model: Annotated[AgentIdIn, Field(description="The id of an agent.")]
    messages: Annotated[list[CompletionMessage], MaxItems("messages_per_request"), keywords(minItems=1)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    tools: Annotated[list[CompletionTool], MaxItems("tools_per_agent")] | None = None

    @property
    def client_shapes(self) -> tuple[Mapping[str, Any], ...] | None:
        """The caller's tools, as a run stores them. Raises: InvalidInput: no tool can be made of one."""
        functions = [tool.function for tool in self.tools or ()]
        shapes = [{**one.model_dump(), "parameters": one.parameters or {"type": "object"}} for one in functions]
        return client_tools_of(shapes).shapes or None

    def contents(self) -> tuple[Sequence[NewMessage], Sequence[Answer] | None]:
        """The messages of users behind the last answer, and what the caller's tools returned. Raises: InvalidInput,
        NotSupported."""
        roles = [message.role for message in self.messages]
        start = len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0
        new = [
            NewMessage(parse_parts(message.content or "", f"messages.{index}.content"), "user", message.name)
            for index, message in enumerate(self.messages)
            if index >= start and message.role == "user"
        ]
        answers: list[Answer] = []
        for index, message in enumerate(self.messages):
            if index >= start and message.role == "tool":
                text, images = parse_return(message.content or "", f"messages.{index}.content")
                answers.append(ToolReturn(message.tool_call_id or "", text, images=images))
        if not new and not answers:
            raise InvalidInput("body.messages: no user says anything after the last answer, so there is none to give")
        return new, answers or None


def completion_shape(reply: Reply, run: Run) -> dict[str, Any]:
    """The whole answer."""
    texts = [text for message in reply.messages for text in _texts_of(message)]
    calls = [call for message in reply.messages for call in _calls_shape(message)]
    message = {"role": "assistant", "content": "\n".join(texts), "refusal": None} | (
        {"tool_calls": calls} if calls else {}
    )
    reason = "tool_calls" if calls else _finish_reason(reply.stop_reason)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return _head(run, "chat.completion") | {"choices": [choice], "usage": _usage_shape(reply.usage)}


class CompletionChunks(ChunkMaker[StoredEvent | Delta]):
    """The chunks of one stream: the role, the pieces of the text, and why it ends."""

    def __init__(self, run: Run, *, with_usage: bool) -> None:
        self.run, self.name, self._with_usage = run, run.id, with_usage
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
                text = "\n".join(_texts_of(message))
                # A text that did not come in pieces comes whole.
                yield from self._text(text.removeprefix(sent) if text.startswith(sent) else "")
                self._calls += _calls_shape(message)
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
        if self._calls:
            yield self._chunk({"tool_calls": [{"index": place, **one} for place, one in enumerate(self._calls)]})
        yield self._chunk({}, "tool_calls" if self._calls else _finish_reason(self._end.stop_reason))
        if self._with_usage:
            usage = _usage_shape(self._end.usage)
            yield _head(self.run, "chat.completion.chunk") | {"choices": [], "usage": usage}

    def broken(self, failure: Failure) -> Iterator[Chunk]:
        yield failure

    def ping(self, now: datetime) -> dict[str, Any]:
        """An empty piece, which keeps a quiet connection open."""
        return self._chunk({})

    def error(self, failure: Failure) -> dict[str, Any]:
        return {"error": {"type": failure.kind, "message": failure.message, "code": None, "param": None}}

    def _text(self, text: str) -> Iterator[Chunk]:
        """The chunk of a piece of the answer; before the first, that of the role."""
        if not text:
            return
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""})
        yield self._chunk({"content": text})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _head(self.run, "chat.completion.chunk") | {"choices": [choice]}


def _head(run: Run, kind: str) -> dict[str, Any]:
    """The first fields of an answer or a chunk; `kind` is the name that OpenAI's API has for the one or the other."""
    created = int(run.created_at.timestamp())
    return {"id": f"chatcmpl-{run.id}", "object": kind, "created": created, "model": run.key.agent_id}


def _texts_of(message: Message) -> Sequence[str]:
    """What the agent says in a message of its run, by text or by `send_message`."""
    if message.step_id is None or message.kind != "message" or message.role != "assistant":
        return ()
    return [str(shape["content"]) for shape in wire_messages(message, _DISPLAY)]


def _calls_shape(message: Message) -> list[dict[str, Any]]:
    """The calls in a message that the caller has to run."""
    return [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.own_arguments}}
        for call in message.calls
        if call.awaits == "client"
    ]


def _finish_reason(reason: StopReason) -> str:
    """OpenAI's word for why an answer ends."""
    return "length" if reason in ("max_tokens_exceeded", "max_steps") else "stop"


def _usage_shape(usage: Usage) -> dict[str, Any]:
    """The tokens of all model calls of the run."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


router = Router(tags=["models"])


@router.get("/v1/models/")
async def list_models(
    library: Library,
    provider_name: str | None = None,
    provider_type: str | None = None,
    provider_category: Annotated[Items[str] | None, Query()] = None,
) -> list[WireModel]:
    """List the models that can be used now, the server's default first."""
    app = library.app
    await library.handles.reload()
    models = [model_shape(handle, facts_of(app, handle)) for handle in handles_of(app)]
    return [
        model
        for model in models
        if (provider_name is None or model["provider_name"] == provider_name)
        and (provider_type is None or model["provider_type"] == provider_type)
        and (not provider_category or model["provider_category"] in provider_category)
    ]


@router.get("/v1/models/embedding")
async def list_embedding_models(library: Library) -> list[dict[str, Any]]:
    """List the server's own embedding model, if it has one. It makes all vectors, whatever clients choose."""
    embedder = library.app.embedder
    return [] if embedder is None else [embedding_model_shape(embedder)]


class GenerateRequest(WireRequest):
    """A prompt for a model, with nothing of the agent but its model and the model's options."""

    prompt: Filled
    system_prompt: str | None = None
    override_model: str | None = None


@router.post("/v1/agents/{agent_id}/generate")
async def generate(agent_id: AgentIdIn, body: GenerateRequest, library: Library, request: Request) -> WireGenerated:
    """Answer a prompt by the agent's model, or by `override_model`. Nothing is stored; the agent does not see it."""
    work = library.prompts.generate(agent_id, body.prompt, system=body.system_prompt, model=body.override_model)
    generated = await while_connected(request, work)
    took = generated.usage
    usage = RequestUsage.make(took, step_count=1, context_tokens=took.total_tokens)
    return WireGenerated(content=generated.text, model=generated.model, usage=usage)


@router.post("/v1/agents/{agent_id}/messages/preview-raw-payload")
async def preview_payload(agent_id: AgentIdIn, body: SendRequest, library: Library) -> Mapping[str, Any]:
    """Get the body by which the model would be asked to answer these messages. Nothing is sent or stored."""
    messages, _ = body.contents()
    return await library.prompts.build_payload(
        agent_id, messages, client_tools=body.client_shapes() or (), options=body.run_options
    )


async def _give_up_calls(library: Library, agent_id: AgentId, answers: Sequence[Answer]) -> Sequence[Answer]:
    """Results that say that none came, for the caller's waiting calls that `answers` has no result of. Without them an
    agent would refuse each message of a client that has forgotten its calls."""
    given = {answer.call_id for answer in answers}
    waiting = await library.agent_of(agent_id).pending()
    return [
        ToolReturn(call.call_id, "The caller gave no result.", status="error")
        for call in waiting
        if call.awaits_client and call.call_id not in given
    ]


@router.post("/v1/chat/completions", response_model=None)
async def complete_chat(
    body: CompletionRequest, library: Library, request: Request
) -> Json[Completion] | StreamingResponse:
    """Send what users said to the agent that `model` names, and answer in OpenAI's shape, streamed on request."""
    streams: Streams = request.app.state.streams
    agent = library.agent_of(body.model)
    said, answers = body.contents()
    if said:
        answers = [*(answers or ()), *await _give_up_calls(library, body.model, answers or ())] or None
    accepted = await agent.send_request(
        RunRequest(
            agent_id=body.model,
            messages=tuple(said),
            answers=None if answers is None else tuple(answers),
            client_tools=body.client_shapes,
            if_busy="reject",
        )
    )
    if not body.stream:
        return await reply_answer(
            streams, accepted, agent.reply_to(accepted), lambda reply: completion_shape(reply, accepted.run)
        )
    forget_body(request)
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    chunks = CompletionChunks(accepted.run, with_usage=with_usage)
    return await streams.stream(agent.follow_accepted(accepted), chunks, pings=True)
