"""Plug-ins on the page of connections: what each brings, switched on and off, removed."""

from __future__ import annotations

from starlette.requests import Request

from perdure.features.plugins.wire import PluginShape
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.http import is_whole_server
from perdure.ui.render import Data, Notice, Section, field_of, form_of


async def load(request: Request, library: AsyncPerdure) -> list[Data]:
    """The plug-ins for the page; none for users who may not change what the machine runs."""
    return [dict(PluginShape.make(one)) for one in await library.plugins.list()] if is_whole_server(request) else []


async def enable(request: Request, library: AsyncPerdure) -> Notice:
    """Enable a plug-in again."""
    name = (await library.plugins.enable(field_of(await form_of(request), "name"))).name
    return Notice(f"{name} is in use. Its hooks are called after the next start.")


async def disable(request: Request, library: AsyncPerdure) -> Notice:
    """Use a plug-in no longer."""
    return Notice(f"{(await library.plugins.disable(field_of(await form_of(request), 'name'))).name} is disabled.")


async def remove(request: Request, library: AsyncPerdure) -> Notice:
    """Remove a plug-in with all that it brought."""
    await library.plugins.remove(name := field_of(await form_of(request), "name"))
    return Notice(f"{name} was removed.")


SECTION = Section(
    name="plugins",
    load=load,
    actions={
        "/connections/plugins/enable": enable,
        "/connections/plugins/disable": disable,
        "/connections/plugins/remove": remove,
    },
)
