"""Agents as folders that people and programs can read, and that imports read back."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="exports",
    uses=("agent_files",),
    verbs={"export": Noun(modules=("commands",), help="Write agents as JSON lines and Markdown.")},
    store_parts={"export": "service:AsyncExports.export"},
)
