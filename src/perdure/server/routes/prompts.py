"""What a model is asked outside an agent's log, and agents behind OpenAI's chat API."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from perdure.server.http import Library, json_answer, while_connected
from perdure.server.routes.messages import reply_answer
from perdure.server.sse import Streams
from perdure.server.wire.base import WireRequest
from perdure.server.wire.completions import CompletionChunks, CompletionRequest, completion_shape
from perdure.server.wire.fields import AgentIdIn, Filled
from perdure.server.wire.input import SendRequest
from perdure.server.wire.runs import usage_statistics

router = APIRouter(tags=["models"])


class GenerateRequest(WireRequest):
    """A prompt for a model, with nothing of the agent but its model and the model's options."""

    prompt: Filled
    system_prompt: str | None = None
    override_model: str | None = None


@router.post("/v1/agents/{agent_id}/generate")
async def generate(agent_id: AgentIdIn, body: GenerateRequest, library: Library, request: Request) -> Response:
    """Answer a prompt by the agent's model, or by `override_model`. Nothing is stored; the agent does not see it."""
    work = library.services.prompts.generate(
        agent_id, body.prompt, system=body.system_prompt, model=body.override_model
    )
    generated = await while_connected(request, work)
    took = generated.usage
    usage = usage_statistics(took, 1, took.input_tokens + took.output_tokens)
    return json_answer({"content": generated.text, "model": generated.model, "usage": usage})


@router.post("/v1/agents/{agent_id}/messages/preview-raw-payload")
async def preview_payload(agent_id: AgentIdIn, body: SendRequest, library: Library) -> Response:
    """Get the body by which the model would be asked to answer these messages. Nothing is sent or stored."""
    messages, _ = body.contents()
    payload = await library.services.prompts.build_payload(
        agent_id, messages, client_tools=body.client_shapes() or (), options=body.run_options
    )
    return json_answer(payload)


@router.post("/v1/chat/completions")
async def complete_chat(body: CompletionRequest, library: Library, request: Request) -> Response:
    """Send what users said to the agent that `model` names, and answer in OpenAI's shape, streamed on request."""
    streams: Streams = request.app.state.streams
    messages = library.services.messages
    accepted = await messages.submit(body.agent_id, body.new_messages(), if_busy="reject")
    if not body.stream:
        return await reply_answer(
            streams, accepted, messages.reply(accepted), lambda reply: completion_shape(reply, accepted.run)
        )
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    chunks = CompletionChunks(accepted.run, with_usage=with_usage)
    return await streams.stream(messages.follow(accepted), chunks, pings=True)
