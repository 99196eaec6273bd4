"""What an agent knows as facts, with the times at which they were true, and where they come from."""

from perdure.core.features import AgentSetting, ArchiveUse, Feature, Noun, RootUse, TableUse, TextUse

_GRAPHS = "FROM agent_graphs a JOIN graphs g ON g.id = a.graph_id WHERE"
_OF_AGENT = f"{_GRAPHS} a.agent_id = :agent_id AND g.org_id = :org_id"

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
    pages=("pages.lists", "pages.profile", "pages.entities", "pages.network"),
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
    has={"graph": "(SELECT h.graph_id FROM agent_graphs h WHERE h.agent_id = {agent})"},
    tables=(TableUse(name="extractions", key=("conversation_seq",)),),
    roots=(
        RootUse(
            name="graphs",
            key="graph_id",
            parts={
                "fact_sources": "first_seq, episode_seq",
                "facts": "seq",
                "episodes": "seq",
                "entity_names": "name, seq",
                "entities": "seq",
                "fact_rules": "seq",
                "communities": "seq",
            },
            of_agents=("agent_graphs",),
            ends_with_agents=True,
            with_ids=("facts", "episodes", "entities"),
            has_sources=True,
        ),
    ),
    text_tables=(
        *(
            TextUse(name=name, place="graph", owners="graphs", owner="graph_id", key=("seq",), texts=texts)
            for name, texts in (
                ("facts", ("relation", "scope", "origin")),
                ("entities", ("name", "summary", "aliases", "attributes")),
                ("episodes", ("ref", "text", "scope")),
                ("fact_rules", ("text", "relation")),
                ("communities", ("name", "summary")),
            )
        ),
        TextUse(name="graphs", place="graph", owners="graphs", owner="id", texts=("settings", "dropped")),
    ),
    text_owners={
        "graphs": (f"SELECT g.id AS id {_OF_AGENT}", "SELECT agent_id FROM agent_graphs WHERE graph_id = :id"),
        "archives": (
            f"SELECT g.fact_archive_id AS id {_OF_AGENT} UNION ALL SELECT g.entity_archive_id {_OF_AGENT}",
            f"SELECT a.agent_id {_GRAPHS} :id IN (g.fact_archive_id, g.entity_archive_id)",
        ),
    },
    one_form={"episodes scope": ("graph_id, seq", ""), "facts scope": ("graph_id, seq", ""), "graphs name": ("id", "")},
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
        "memory_versions": "units.deltas:graph_versions",
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
        "imported": "units.retraction:take_imported",
        "redacted_rows": "upkeep:renew_version",
        "page_changes": "pages.lists:watch_graph",
    },
)
