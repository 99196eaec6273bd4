"""What fills a context window, what a model was sent, and what a conversation costs."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="costs",
    verbs={
        "context": Noun(modules=("commands",), help="Show the context window, the requests to models and their cost.")
    },
    routes=("routes",),
    sections={"runs": "pages:SECTION"},
    agent_parts={"costs": "service:AsyncCosts.costs"},
)
