"""An agent's secrets: which there are. Their values are set with the agent and never shown."""

from __future__ import annotations

from fastapi import APIRouter, Response

from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath
from perdure.server.wire.secrets import secret_shape

router = APIRouter(tags=["agents"])


@router.get("/v1/agents/{agent_id}/secrets")
async def list_secrets(agent_id: AgentPath, library: Library) -> Response:
    """The names of the agent's secrets, from A to Z; every value is empty."""
    return json_answer([secret_shape(secret) for secret in await library.services.secrets.list(agent_id)])
