"""The helpers of an agent on the page of its memory."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from perdure.core.text.reprs import attributes
from perdure.features.helpers.catalog import RUN_HELPER
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Section, agent_id_of


async def load(request: Request, library: AsyncPerdure) -> Sequence[Data]:
    """Return the helpers of the page's agent with their models; none if it lacks the tool that calls them."""
    agent = library.agent_of(agent_id_of(request))
    if all(tool.name != RUN_HELPER for tool in await agent.tools.list()):
        return []
    routes = {route.name: route for route in await agent.helpers.routes()}
    return [
        attributes(helper, "name", "layer", "memory", description="definition.description")
        | attributes(routes[helper.name], "model", "reason")
        for helper in await agent.helpers.list()
        if helper.name in routes
    ]


SECTION = Section(name="helpers", load=load, actions={})
