"""Tools: what an agent can call, with schema, source and rules; trying a tool in the sandbox."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.tools.spec import ToolFilter
from perdure.library.paging import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.tools.tools import ToolState
from perdure.ui.pages.home import agent_shape
from perdure.ui.pages.memory import AUTHOR
from perdure.ui.render import Data, Notice, Pages, agent_id_of, field_of, form_of

TOOLS_MAX = 500

pages = Pages()


@pages.get("/agents/{agent_id}/tools", "tools.html")
async def tools(request: Request, library: AsyncPerdure) -> Data:
    """The agent's tools, those that it could have, and its rules."""
    services, agent_id = library.services, agent_id_of(request)
    agent = await services.agents.resolve(agent_id)
    attached = await services.tools.list_of_agent(agent_id)
    every = await services.tools.list(ToolFilter(), Page(TOOLS_MAX, ascending=True))
    names = {state.tool.name for state in attached}
    return {
        "title": f"{agent.name} · Tools",
        "agent": agent_shape(agent),
        "tab": "tools",
        "tools": [tool_shape(state) for state in attached],
        "others": sorted(state.tool.name for state in every if state.tool.name not in names),
        "rules": [{"type": rule.type, **asdict(rule)} for rule in await services.agents.list_rules(agent_id)],
        "sleeping": list(await services.agents.list_missing_tools(agent_id)),
    }


def tool_shape(state: ToolState) -> Data:
    """A tool as the page shows it."""
    spec = state.tool.spec
    return {
        "id": state.tool.id,
        "name": spec.name,
        "description": spec.description,
        "parameters": json.loads(json.dumps(spec.parameters, default=dict)),
        "needs_approval": spec.requires_approval,
        "source": None if state.code is None else state.code.source,
        "network": [] if state.code is None else list(state.code.network),
        "requirements": [] if state.code is None else list(state.code.requirements),
        "tags": list(state.tool.tags),
    }


@pages.post("/agents/{agent_id}/tools", shows=tools)
async def attach(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent a tool."""
    name = field_of(await form_of(request), "tool")
    await library.services.tools.attach(agent_id_of(request), name)
    return Notice(f"{name} was attached.")


@pages.post("/agents/{agent_id}/tools/{tool}/detach", shows=tools)
async def detach(request: Request, library: AsyncPerdure) -> Notice:
    """Take a tool away from the agent."""
    agent_id, name = agent_id_of(request), request.path_params["tool"]
    await library.services.tools.detach(agent_id, name)
    return Notice(f"{name} was detached.", undo=f"/agents/{agent_id}/tools", fields={"tool": name})


@pages.post("/agents/{agent_id}/tools/{tool}/approval", shows=tools)
async def require_approval(request: Request, library: AsyncPerdure) -> Notice:
    """Require a person's approval of each call, or no longer."""
    name, required = request.path_params["tool"], (await form_of(request)).get("required") == "yes"
    await library.services.approvals.require(agent_id_of(request), name, required, author=AUTHOR)
    return Notice(f"{name} {'needs approval' if required else 'runs without approval'} from now on.")


@pages.post("/agents/{agent_id}/tools/{tool}/try", shows=tools)
async def try_tool(request: Request, library: AsyncPerdure) -> Notice:
    """Run a tool for the agent as its own call would: in the sandbox, and with its effects on memory."""
    name, text = request.path_params["tool"], (await form_of(request)).get("arguments", "").strip() or "{}"
    try:
        arguments: Any = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"arguments: {error}; write a JSON object such as {{}}") from error
    if not isinstance(arguments, dict):
        raise InvalidInput("arguments: write a JSON object such as {}")
    outcome = await library.services.tools.run_of_agent(agent_id_of(request), name, arguments, author=AUTHOR)
    return Notice(f"{name}: {outcome.text}", is_error=outcome.status != "success")
