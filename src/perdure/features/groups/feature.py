"""Groups of agents, companions that tidy another agent's memory, and agents that write to agents."""

from perdure.core.features import Feature, Noun, RootUse, TableUse, TextUse

_SAME_PAIR = "x.agent_id = agent_blocks.agent_id AND x.block_id = agent_blocks.block_id"
ATTACHMENTS = (
    f"EXISTS (SELECT 1 FROM group_blocks x WHERE x.group_id = :id AND x.attached = 1 AND {_SAME_PAIR})"
    f" AND NOT EXISTS (SELECT 1 FROM group_blocks x WHERE x.group_id <> :id AND {_SAME_PAIR})"
)
"""The condition of rows of `agent_blocks` that are there because of the group `:id` and of nothing else."""

_OWN = "SELECT group_id FROM group_agents WHERE agent_id = :owner"
"""The groups that an agent takes part in."""

COMPANION, COMPANION_OF = "companion", "companion_of"
"""The settings of an agent that has a companion, and of a companion."""

FEATURE = Feature(
    name="groups",
    nouns={
        "group": Noun(modules=("commands",), help="List, show, create, update, cancel, reset, delete; send."),
        "companion": Noun(
            modules=("companion_commands",), help="List, show, wake or update agents that tidy memory; on, off."
        ),
    },
    routes=("routes",),
    pages=("pages",),
    sections={"memory": "pages:COMPANION_SECTION", "agent_settings": "pages:COMPANION_SETTINGS"},
    toolboxes={"agents": "tools:AgentMessages"},
    own_settings=(COMPANION, COMPANION_OF),
    agent_parts={"companion": "companion_service:AsyncCompanion"},
    store_parts={"groups": "service:AsyncGroups", "companions": "companion_service:AsyncCompanion"},
    services=("runner:GroupRunner", "worker:Companions"),
    tables=(TableUse(name="companion_passes", key=("number",)),),
    roots=(
        RootUse(
            name="groups",
            key="group_id",
            parts={
                "group_agents": "agent_id",
                "group_blocks": "agent_id, block_id",
                "group_messages": "seq",
                "group_turns": "seq",
            },
            links={"blocks": {"group_blocks": ("block_id", "group_id, agent_id")}},
            of_agents=("group_agents", "group_blocks"),
            owner="manager_agent_id",
            ends=f"DELETE FROM agent_blocks WHERE {ATTACHMENTS}",
        ),
    ),
    text_tables=(
        TextUse(name="groups", place="group", owner=f"id IN ({_OWN})", key=("id",), texts=("description",)),
        *(
            TextUse(name=name, place="group", owner=f"group_id IN ({_OWN})", key=("group_id", "seq"), texts=texts)
            for name, texts in (("group_turns", ("failure", "input", "plan")), ("group_messages", ("parts",)))
        ),
    ),
    points={
        "agent_deleted": "companions:delete_companions",
        "agent_fields": "wire:agent_fields",
        "agent_states": "passes:load_managed",
        "asked_by_run": "tools:check_asked",
        "begin_pass": "passes:begin_scheduled",
        "blocks_changed": "companions:follow_blocks",
        "chat_news": "companion_commands:CompanionUpdates",
        "companions": "companions:list_companions",
        "compacted": "worker:look_at",
        "goes_last": "worker:goes_last",
        "group_conversation": "routes:conversation_of",
        "group_stop_reason": "values:GroupStopReason",
        "import_group": "wire:import_group",
        "managed_group": "wire:Group",
        "memory_owner": "companions:find_owner",
        "message_edited": "passes:end_pass_of_edited",
        "pass_begun": "worker:look_at",
        "set_companion": "companions:set_companion",
        "work_waits": "units:has_work",
    },
)
