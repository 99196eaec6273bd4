"""The models that can be used, and what one is asked outside an agent's log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request

from perdure.core.ids import AgentId, ConversationId
from perdure.library.perdure import AsyncPerdure
from perdure.server.routes.conversations import find_in_path
from perdure.server.wire.answers import WireGenerated
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import AgentIdIn, ConversationPath, Filled, Items
from perdure.server.wire.http import Library, Router, while_connected
from perdure.server.wire.input import SendRequest
from perdure.server.wire.models import WireModel, embedding_model_shape, facts_of, handles_of, model_shape
from perdure.server.wire.runs import RequestUsage

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
    await app.decide()
    models = [model_shape(handle, facts_of(app, handle)) for handle in handles_of(app)]
    return [
        model
        for model in models
        if (provider_name is None or model["provider_name"] == provider_name)
        and (provider_type is None or model["provider_type"] == provider_type)
        and (not provider_category or model["provider_category"] in provider_category)
    ]


@router.get("/v1/models/embeddings", include_in_schema=False)  # its name in clients before 1.0
@router.get("/v1/models/embedding")
async def list_embedding_models(library: Library) -> list[dict[str, Any]]:
    """List the server's own embedding model, which makes all vectors, whatever clients choose; or `perdure/none`."""
    return [embedding_model_shape(library.app.embedder)]


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
    return await _payload(library, body, agent_id, None)


@router.post("/v1/conversations/{conversation_id}/messages/preview-raw-payload")
async def preview_conversation_payload(
    conversation_id: ConversationPath, body: SendRequest, library: Library
) -> Mapping[str, Any]:
    """Get the body by which the model would be asked to answer these messages in a conversation. Nothing is sent or
    stored."""
    agent, named = await find_in_path(library, conversation_id, body.agent_id)
    conversation = await agent.find_conversation(named)
    return await _payload(library, body, conversation.agent_id, conversation.id)


async def _payload(
    library: AsyncPerdure, body: SendRequest, agent_id: AgentId, conversation: ConversationId | None
) -> Mapping[str, Any]:
    """The body by which the model would be asked. Raises: as `Prompts.build_payload`."""
    messages, _ = body.contents()
    return await library.prompts.build_payload(
        agent_id, messages, conversation=conversation, client_tools=body.client_shapes() or (), options=body.run_options
    )
