"""Agents described in files under version control, and what becomes of them: a plan, and then the change."""

from perdure.core.features import Feature, Noun, OrgTable

FEATURE = Feature(
    name="manifests",
    uses=("groups", "mcp", "schedules"),
    nouns={"agent": Noun(modules=("commands",))},
    verbs={
        "apply": Noun(modules=("commands",), help="Create and change agents, and what they use, to match files."),
        "diff": Noun(modules=("commands",), help="Show where agents differ from the files that describe them."),
    },
    routes=("routes",),
    store_parts={"manifests": "service:AsyncManifests"},
    org_tables=(OrgTable(name="manifest_things", why="a row for each thing that a file describes"),),
)
