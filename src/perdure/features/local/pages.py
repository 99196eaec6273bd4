"""The local models on the page of connections: what is here, what can be fetched, which one is the default."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import cast

from starlette.requests import Request

from perdure.features.local.catalogue import known_model
from perdure.features.local.models import PROVIDER, LocalModels
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.http import is_whole_server
from perdure.ui.render import Data, Notice, Section, field_of, form_of


async def load(request: Request, library: AsyncPerdure) -> Data | None:
    """The models for the page; None for users who may not change what the machine runs."""
    if not is_whole_server(request):
        return None
    local = served_by(library)
    rows = []
    for model in local.models():
        task = local.transfers.get(model.name)
        failure = task.exception() if task is not None and task.done() and not task.cancelled() else None
        is_running = task is not None and not task.done()
        rows.append({**asdict(model), "is_running": is_running, "problem": str(failure or "")})
    return {"models": rows, "missing": local.missing(), "is_running": any(row["is_running"] for row in rows)}


async def get_model(request: Request, library: AsyncPerdure) -> Notice:
    """Fetch a model of the catalogue in the background."""
    model = known_model(name := field_of(await form_of(request), "name"))
    local = served_by(library)
    if name not in local.transfers or local.transfers[name].done():
        local.transfers[name] = asyncio.create_task(local.fetch(model))
    return Notice(f"{name} is being fetched. You can leave this page.")


async def use_model(request: Request, library: AsyncPerdure) -> Notice:
    """Make a model the default."""
    name = field_of(await form_of(request), "name")
    local = served_by(library)
    local.get(name)  # only by name: a path would let a client of the server name any file
    local.use(name)
    choice = await library.app.choose()
    if choice.handle != f"{PROVIDER}/{name}":
        return Notice(f"{name} is chosen, but new agents answer with {choice.handle}: {choice.reason}.", is_error=True)
    return Notice(f"Agents without a model of their own answer with {choice.handle}.")


async def remove_model(request: Request, library: AsyncPerdure) -> Notice:
    """Remove a model."""
    name = field_of(await form_of(request), "name")
    is_gone = served_by(library).remove(name)
    await library.app.choose()
    return Notice(f"{name} was removed." if is_gone else f"{name} is no longer a model here; its file stays.")


def served_by(library: AsyncPerdure) -> LocalModels:
    """The models of this process."""
    return cast(LocalModels, library.app.shared.own)


SECTION = Section(
    name="local_models",
    load=load,
    actions={
        "/connections/local/get": get_model,
        "/connections/local/use": use_model,
        "/connections/local/remove": remove_model,
    },
)
