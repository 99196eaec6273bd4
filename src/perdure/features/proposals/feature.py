"""Blocks that only a person changes, and proposals to change memory, which a person approves or refuses."""

from perdure.core.features import Feature, Noun, TableUse, TextUse

_TEXTS = ("label", "new_value", "diff", "reason", "evidence", "decision")

FEATURE = Feature(
    name="proposals",
    nouns={
        "proposal": Noun(modules=("commands",), help="List, show, approve or refuse what agents propose to change."),
        "memory": Noun(modules=("commands",)),
    },
    routes=("routes",),
    pages=("pages",),
    tabs={"proposals": "/proposals"},
    tools="tools",
    parts={"proposals": "service:AsyncProposals"},
    tables=(TableUse(name="proposals", key=("number",)),),
    text_tables=(TextUse(name="proposals", place="proposal", key=("number",), texts=_TEXTS),),
    points={"companion_fields": "reflection:companion_fields", "pass_task": "reflection:pass_task"},
)
