"""Exact states of agents: kept, brought back, and made into agents of their own."""

from perdure.core.features import Feature, Noun, TableUse, TextUse

FEATURE = Feature(
    name="snapshots",
    nouns={"agent": Noun(modules=("commands",))},
    routes=("routes",),
    sections={"run": "pages:OF_RUN", "agent_settings": "pages:OF_AGENT"},
    store_parts={"load_snapshot": "service:AsyncSnapshotFiles.load_snapshot"},
    agent_parts={"snapshots": "service:AsyncSnapshots"},
    tables=(TableUse(name="snapshots", key=("number",)),),
    text_tables=(TextUse(name="snapshots", place="settings", key=("number",), texts=("body", "note")),),
)
