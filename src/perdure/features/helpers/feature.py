"""Helpers: agents that work for another one, each with a task, a window and a model of its own."""

from perdure.core.features import Feature, Noun, TableUse

HELPER_OF = "helper_of"
"""The setting of a helper's agent: the id of the agent that it works for, and the name of its definition."""

FEATURE = Feature(
    name="helpers",
    uses=("groups", "plugins"),
    nouns={"helper": Noun(modules=("commands",), help="List or show the helpers of an agent; routes, their models.")},
    routes=("routes",),
    sections={"memory": "pages:SECTION"},
    agent_parts={"helpers": "service:AsyncHelpers"},
    toolboxes={"helpers": "tools:Helpers"},
    own_settings=(HELPER_OF,),
    has={
        "helpers": "EXISTS (SELECT 1 FROM tools t JOIN agent_tools x ON x.tool_id = t.id"
        " WHERE t.org_id = a.org_id AND t.name = 'run_helper' AND x.agent_id = {agent})"
    },
    tables=(TableUse(name="helpers", key=("name",)),),
    points={
        "agent_deleted": "agents:delete_helpers",
        "command_model": "choices:choose_for_command",
        "asked_by_run": "agents:check_asked",
        "memory_deltas": "index:memory_deltas",
        "memory_versions": "index:memory_versions",
        "plugin_removed": "agents:remove_of_plugin",
        "prefix_section": "index:prefix_section",
        "skill_holder": "agents:find_parent",
    },
)
