"""Agents as files, which Letta's server reads and writes too."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="agent_files",
    uses=("files",),
    nouns={"agent": Noun(modules=("commands",))},
    routes=("routes",),
    pages=("pages",),
    sections={"agent_settings": "pages:OF_AGENT", "home": "pages:AT_HOME"},
)
