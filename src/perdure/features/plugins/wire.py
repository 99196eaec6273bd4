"""The setting `project` in requests, and plug-ins in answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from perdure.features.plugins.definitions import DefinitionKind, DefinitionProblem
from perdure.features.plugins.manifest import PluginHook
from perdure.features.plugins.projects import PATH_CHARS, check_root
from perdure.features.plugins.service import PluginContents
from perdure.server.wire.fields import request_limits
from perdure.server.wire.shapes import WireShape, computed
from perdure.settings import Settings


def _below_roots(value: str) -> str:
    """The path of a project, checked where a server reads it. Raises: InvalidInput."""
    if value and isinstance(settings := request_limits.get(), Settings):
        check_root(value, settings)
    return value


ProjectPath = Annotated[str, Field(max_length=PATH_CHARS), AfterValidator(_below_roots)]
"""The folder of an agent's project, below one of the server's roots; empty: none."""


class PluginHookShape(WireShape, of=PluginHook, fields="event matcher command timeout_s"):
    """A command that a plug-in runs at an event of Claude Code."""


class PluginShape(WireShape, of=PluginContents, fields="record.name record.version record.description"):
    """A plug-in and what it brings. `unused`: why it is not in use; empty: it is."""

    installed_at: str = computed(lambda plugin: plugin.record.installed_at)
    unused: str
    dependencies: dict[str, str] = computed(lambda plugin: dict(plugin.record.dependencies))
    agents: list[str] = computed(lambda plugin: _names(plugin, "agents"))
    commands: list[str] = computed(lambda plugin: _names(plugin, "commands"))
    skills: list[str] = computed(lambda plugin: _names(plugin, "skills"))
    hooks: list[PluginHookShape] = computed(lambda plugin: list(map(PluginHookShape.make, plugin.record.hooks)))
    mcp_servers: list[str] = computed(lambda plugin: [f"{one.name}: {one.place}" for one in plugin.record.servers])
    problems: list[str] = computed(lambda plugin: list(map(str, plugin.problems)))
    notes: list[str] = computed(lambda plugin: list(plugin.notes))


class DefinitionProblemShape(WireShape, of=DefinitionProblem, fields="line why"):
    """Why a file defines nothing. `line` is counted from 1; 0: no line is to blame."""

    kind: DefinitionKind
    path: str = computed(lambda problem: str(problem.path))


def _names(plugin: PluginContents, kind: DefinitionKind) -> list[str]:
    """The names of a plug-in's definitions of a kind."""
    return [definition.name for definition in plugin.definitions.get(kind, ())]
