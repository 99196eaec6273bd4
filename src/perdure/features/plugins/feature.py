"""Helpers, commands and skills as Markdown files, from six layers; and plug-ins, folders that bring some of each."""

from perdure.core.features import AgentSetting, Feature, Noun

FEATURE = Feature(
    name="plugins",
    nouns={"plugin": Noun(modules=("commands",), help="List, show, install, enable, disable or remove plug-ins.")},
    routes=("routes",),
    sections={"connections": "pages:SECTION"},
    agent_settings={"project": AgentSetting(check="projects:check_project", shape="wire:ProjectPath", stays=True)},
    store_parts={"plugins": "service:AsyncPlugins"},
    points={"more_hooks": "hooks:plugin_hooks", "server_unused": "installed:why_server_unused"},
)
