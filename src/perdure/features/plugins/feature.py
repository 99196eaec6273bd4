"""Helpers, commands and skills as Markdown files, from six layers; and plug-ins, folders that bring some of each."""

from __future__ import annotations

from perdure.core.features import AgentSetting, Feature

FEATURE = Feature(
    name="plugins", agent_settings={"project": AgentSetting(check="projects:check_project", shape="wire:ProjectPath")}
)
