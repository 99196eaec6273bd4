"""`perdure why`: where a memory or an answer comes from."""

from __future__ import annotations

from perdure.cli.views.view import View
from perdure.cli.views.why import origin_view
from perdure.cli.work import get_agent, open_store
from perdure.core.errors import NotFound
from perdure.library.origins import Origin, origin_shape
from perdure.library.services.why import is_id_start

NO_AGENT = "there is no agent yet: `perdure` makes one and starts the chat"


async def why(view: View, *, of: str, agent: str | None) -> None:
    """Print the origin of the memory or answer with this id, or with these words in an agent's memory."""
    async with open_store(view, empty=NotFound("memory or answer", of, hint=NO_AGENT)) as perdure:
        owner = await perdure.last_agent() if agent is None else await get_agent(view, perdure, agent)
        if agent is None and is_id_start(of):
            origin = await perdure.services.why.find_origin(of)
        elif owner is None:
            raise NotFound("memory or answer", of, hint=NO_AGENT)
        else:
            origin = await owner.why(of)
        show_origin(view, origin)


def show_origin(view: View, origin: Origin) -> None:
    """Show an origin."""
    view.show({"why": origin_shape(origin)}, *origin_view(origin))
    view.hint("`perdure why ID` opens each of these ids")
