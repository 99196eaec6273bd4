"""Perdure's memory for any program that speaks the Model Context Protocol, over stdio and HTTP."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="mcp_server",
    uses=("facts", "notes", "origins"),
    routes=("routes",),
    points={"not_searched": "outputs:say_kept", "text_erased": "outputs:erase_in_outputs"},
    nouns={
        "mcp": Noun(
            modules=("commands",),
            help="Serve memory; add, list, show, refresh, approve or delete servers.",
            default="serve",
        )
    },
)
