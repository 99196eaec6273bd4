"""A small protocol for programs that show agents, and a bot for Telegram."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="interfaces",
    uses=("files",),
    verbs={"telegram": Noun(modules=("telegram.commands",), help="Let people talk to an agent in Telegram.")},
    agent_parts={"talk": "service:AsyncTalks.talk"},
)
