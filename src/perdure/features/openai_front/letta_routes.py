"""`/v1/chat/completions`: an agent's first conversation in OpenAI's shape, as Letta has it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import StreamingResponse

from perdure.core.errors import InvalidInput
from perdure.core.runs import RunOptions
from perdure.engine.records.run_request import RunRequest
from perdure.features.openai_front.answers import ChatWriter, Completion, answer_run
from perdure.features.openai_front.asking import digest_of_body
from perdure.features.openai_front.bodies import CompletionRequest, function_shapes
from perdure.features.openai_front.service import ANSWERED, REQUEST, with_lost_results
from perdure.server.wire.http import Json, Library, Router

router = Router(tags=["models"])


@router.post("/v1/chat/completions", response_model=None)
async def complete_chat(
    body: CompletionRequest, library: Library, request: Request
) -> Json[Completion] | StreamingResponse:
    """Send what users said to the agent that `model` names, and answer in OpenAI's shape, streamed on request."""
    agent = library.agent_of(body.model)
    said, answers = body.new_contents()
    whole = digest_of_body(body.model_dump(mode="json"))
    accepted = await agent.send_request(
        RunRequest(
            agent_id=body.model,
            messages=tuple(said),
            answers=await with_lost_results(agent, answers) if said else tuple(answers),
            client_tools=function_shapes(body.tools),
            if_busy="reject",
            options=RunOptions(form={REQUEST: whole}),
        )
    )
    if accepted.repeated and not said and accepted.run.options.form.get(REQUEST, whole) != whole:
        raise InvalidInput(ANSWERED)
    writer = ChatWriter.of_run(accepted.run, with_usage=body.with_usage)
    return await answer_run(request, agent, accepted, writer, stream=body.stream)
