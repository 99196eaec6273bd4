"""Structured notes, kept as Markdown in archival memory; and memory that belongs to a project's folder."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="notes",
    nouns={
        "note": Noun(
            modules=("commands",), help="Add, list, show, search, edit, keep, archive, restore, delete, review; kinds."
        )
    },
    routes=("routes",),
    pages=("pages",),
    tabs={"notes": "/notes"},
    agent_parts={"notes": "service:AsyncNotes"},
    points={
        "agent_gone": "state:remove_agents",
        "blocks_changed": "state:drop_contexts",
        "memory_corrected": "state:drop_contexts",
        "organisation_removed": "state:remove_organisation",
    },
)
