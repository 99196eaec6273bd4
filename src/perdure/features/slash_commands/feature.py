"""Commands of the user: Markdown files whose text is sent as a message, with arguments, by `/NAME`."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="slash_commands",
    uses=("plugins",),
    nouns={"command": Noun(modules=("commands",), help="List, show or run commands, texts that are sent by /NAME.")},
    routes=("routes",),
    agent_parts={"commands": "service:AsyncSlashCommands"},
    points={"slash_text": "service:read_slash_text", "listed_slashes": "service:list_slashes"},
)
