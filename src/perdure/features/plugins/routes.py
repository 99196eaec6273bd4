"""Plug-ins over HTTP: listed, switched on and off, removed. Installing one runs other people's programs as the server's
user, so that only the command line and the library do. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from perdure.features.plugins.wire import DefinitionProblemShape, PluginShape
from perdure.server.wire.http import Library, Router, ThisAgent
from perdure.server.wire.shapes import WireShape

router = Router(tags=["plugins"])

_Name = Annotated[str, Path(description="The plug-in's name.", max_length=64)]


class DeletedPlugin(WireShape):
    """A plug-in that was removed."""

    name: str


@router.get("/v1/plugins")
async def list_plugins(library: Library) -> list[PluginShape]:
    """List the installed plug-ins, by name."""
    return [PluginShape.make(contents) for contents in await library.plugins.list()]


@router.get("/v1/agents/{agent_id}/definitions/problems")
async def list_definition_problems(agent: ThisAgent, library: Library) -> list[DefinitionProblemShape]:
    """List the files that define no helper, command or skill of an agent, each with its line and the reason."""
    found = await library.plugins.problems(agent.id)
    return [DefinitionProblemShape.make(problem, kind=kind) for kind, problems in found.items() for problem in problems]


@router.get("/v1/plugins/{plugin_name}")
async def retrieve_plugin(plugin_name: _Name, library: Library) -> PluginShape:
    """Get a plug-in and what it brings."""
    return PluginShape.make(await library.plugins.get(plugin_name))


@router.post("/v1/plugins/{plugin_name}/enable")
async def enable_plugin(plugin_name: _Name, library: Library) -> PluginShape:
    """Enable a plug-in again."""
    return PluginShape.make(await library.plugins.enable(plugin_name))


@router.post("/v1/plugins/{plugin_name}/disable")
async def disable_plugin(plugin_name: _Name, library: Library) -> PluginShape:
    """Use a plug-in no longer."""
    return PluginShape.make(await library.plugins.disable(plugin_name))


@router.delete("/v1/plugins/{plugin_name}")
async def delete_plugin(plugin_name: _Name, library: Library) -> DeletedPlugin:
    """Remove a plug-in with all that it brought."""
    await library.plugins.remove(plugin_name)
    return DeletedPlugin.make(None, name=plugin_name)
