"""The local models on the page of connections: what is here, what can be fetched, which one is the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from starlette.requests import Request

from perdure.core.errors import NotFound
from perdure.features.local.folder import catalogue
from perdure.features.local.models import PROVIDER, shown_size
from perdure.library.perdure import AsyncPerdure
from perdure.server.http import is_whole_server
from perdure.ui.render import Act, Data, Notice, field_of, form_of


def section(request: Request, library: AsyncPerdure) -> Data | None:
    """The models; None for those who may not change what the machine runs."""
    if not is_whole_server(request):
        return None
    local = library.app.shared.local
    rows = [{**asdict(row), "shown_size": shown_size(row.size)} for row in local.rows()]
    return {"models": rows, "missing": local.missing(), "is_running": any(row["is_running"] for row in rows)}


async def get_model(request: Request, library: AsyncPerdure) -> Notice:
    """Fetch a model of the catalogue in the background."""
    name = field_of(await form_of(request), "name")
    if (model := catalogue().get(name)) is None:  # an address is for whoever sits at the machine
        raise NotFound("model", name, hint=f"there are {', '.join(catalogue())}")
    library.app.shared.local.get_later(model)
    return Notice(f"{name} is being fetched. You can leave this page.")


async def use_model(request: Request, library: AsyncPerdure) -> Notice:
    """Make a model the default."""
    folder = library.app.shared.local.folder
    name = field_of(await form_of(request), "name")
    folder.get(name)
    folder.use(name)
    choice = await library.app.choose()
    if choice.handle != f"{PROVIDER}/{name}":
        return Notice(f"{name} is chosen, but new agents answer with {choice.handle}: {choice.reason}.", is_error=True)
    return Notice(f"Agents without a model of their own answer with {choice.handle}.")


async def remove_model(request: Request, library: AsyncPerdure) -> Notice:
    """Remove a model."""
    name = field_of(await form_of(request), "name")
    is_gone = library.app.shared.local.folder.remove(name)
    await library.app.choose()
    return Notice(f"{name} was removed." if is_gone else f"{name} is no model here any more; its file stays.")


ACTIONS: Mapping[str, Act] = {
    "/connections/local/get": get_model,
    "/connections/local/use": use_model,
    "/connections/local/remove": remove_model,
}
"""Path -> what it does; the page of connections is shown after it."""
