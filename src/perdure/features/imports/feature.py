"""The past that people bring from ChatGPT, Claude, mem0, Zep, Letta's server, Markdown and lines of JSON."""

from perdure.core.features import Feature, Noun, TableUse

FEATURE = Feature(
    name="imports",
    uses=("agent_files",),
    verbs={"import": Noun(modules=("commands",), help="Bring conversations and memories from another program.")},
    nouns={"tool": Noun(modules=("commands",))},
    routes=("routes",),
    sections={"data": "pages:SECTION", "tools": "pages:REVIEW"},
    store_parts={"imports": "service:AsyncImports"},
    points={"former_agents": "units:former_agents"},
    tables=(TableUse(name="imported", key=("id",)),),
)
