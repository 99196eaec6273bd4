"""The helpers of an agent, and their models. No part of Letta's API."""

from __future__ import annotations

from perdure.features.helpers import wire
from perdure.server.wire.http import Router, ThisAgent

router = Router(tags=["helpers"])


@router.get("/v1/agents/{agent_id}/helpers")
async def list_helpers(agent: ThisAgent) -> list[wire.HelperShape]:
    """List the helpers of an agent by name, also those that can't be called."""
    return [wire.HelperShape.make(helper) for helper in await agent.helpers.list()]


@router.get("/v1/agents/{agent_id}/helpers/routes")
async def list_helper_routes(agent: ThisAgent) -> list[wire.HelperRouteShape]:
    """List on which model each helper runs, and why."""
    return [wire.HelperRouteShape.make(route) for route in await agent.helpers.routes()]
