"""The companion of an agent, on its memory page: woken, switched on, and deleted."""

from __future__ import annotations

from starlette.requests import Request

from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.memory import memory
from perdure.ui.render import Notice, Pages, agent_id_of

pages = Pages()


@pages.post("/agents/{agent_id}/memory/companion/wake", shows=memory)
async def wake(request: Request, library: AsyncPerdure) -> Notice:
    """Have the companion read what is new; the page shows the pass once it has ended."""
    begun = await library.services.companions.wake(agent_id_of(request))
    return Notice("Nothing new was said since its last pass." if begun is None else "The companion reads what is new.")


@pages.post("/agents/{agent_id}/memory/companion/on", shows=memory)
async def switch_on(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent a companion."""
    info = await library.services.companions.enable(agent_id_of(request))
    return Notice(f"{info.name} reads what is said from now on, and tidies the blocks.")


@pages.post("/agents/{agent_id}/memory/companion/off", shows=memory)
async def switch_off(request: Request, library: AsyncPerdure) -> Notice:
    """Delete the companion with its history."""
    await library.services.companions.disable(agent_id_of(request))
    return Notice("The companion is deleted; what it wrote stays.")
