"""`/v1/chat/completions`: an agent's first conversation in OpenAI's shape, as Letta has it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import StreamingResponse

from perdure.engine.records.run_request import RunRequest
from perdure.features.openai_front.answers import Completion, CompletionChunks, completion_shape
from perdure.features.openai_front.bodies import CompletionRequest
from perdure.features.openai_front.service import with_lost_results
from perdure.server.routes.messages import reply_answer
from perdure.server.wire.http import Json, Library, Router, forget_body
from perdure.server.wire.sse import Streams

router = Router(tags=["models"])


@router.post("/v1/chat/completions", response_model=None)
async def complete_chat(
    body: CompletionRequest, library: Library, request: Request
) -> Json[Completion] | StreamingResponse:
    """Send what users said to the agent that `model` names, and answer in OpenAI's shape, streamed on request."""
    streams: Streams = request.app.state.streams
    agent = library.agent_of(body.model)
    said, answers = body.contents()
    if said:
        answers = await with_lost_results(agent, answers or ())
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
    chunks = CompletionChunks(accepted, with_usage=body.with_usage)
    return await streams.stream(agent.follow_accepted(accepted), chunks, pings=True)
