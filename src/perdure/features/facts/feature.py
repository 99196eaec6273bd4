"""What an agent knows as facts, with the times at which they were true, and where they come from."""

from __future__ import annotations

from perdure.core.features import AgentSetting, ArchiveUse, Feature, Noun

FEATURE = Feature(
    name="facts",
    nouns={
        "fact": Noun(
            modules=("commands",),
            help="List, search, show, add, edit, forget, restore, accept or tidy; history, rules,"
            " profile, timeline, context, communities, entities, pause, resume, settings.",
        )
    },
    routes=("routes",),
    pages=("pages",),
    tabs={"facts": "/facts"},
    slashes={"/facts [TEXT]": "cli_views:show_facts"},
    agent_settings={
        "facts": AgentSetting(
            check="values.settings:check_agent_facts",
            shape="wire:FactSettingOfAgent",
            of_companions={"capture": "off"},
            keeps_empty=True,
            keeps_false=True,
        )
    },
    tools="tools",
    parts={"facts": "service:AsyncFacts"},
    agent_parts={"profile": "views:AsyncFactViews.profile", "timeline": "views:AsyncFactViews.timeline"},
    services=("extraction.worker:Extractions",),
    archives=(
        ArchiveUse(
            table="graphs",
            columns=("fact_archive_id", "entity_archive_id"),
            holds="the texts of facts",
            kind="graph",
            help="change the facts of",
        ),
    ),
    copies="copies:FACTS",
    texts="forgetting:TEXTS",
    points={
        "turns_read": "copies:count_turns_read",
        "found_by_words": "cli_views:search_facts",
        "memory_deltas": "units.deltas:build_fact_deltas",
        "recall_plan": "search.plan:plan_facts",
        "recall_hits": "search.recall:add_facts",
        "recall_fills": "search.recall:add_profile",
        "recalled": "search.plan:count_facts",
        "texts_changed": "units.retraction:retract_changed",
        "texts_deleted": "units.retraction:retract_deleted",
        "wordings": "search.words:match_facts",
        "fact_origin_shape": "wire:FactOriginShape",
        "fact_view": "cli_views:origin_view",
        "origin_of": "origins:origin_of_fact",
        "compare": "upkeep:check_entities",
        "redacted_rows": "upkeep:renew_version",
        "page_changes": "pages:watch_graph",
    },
)
