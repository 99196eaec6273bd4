"""One command that gives a program, such as Claude Code, Perdure's memory; and the hooks that such programs run."""

from perdure.core.features import Feature, Noun

FEATURE = Feature(
    name="connect",
    uses=("mcp_server", "notes"),
    sections={"connections": "pages:SECTION"},
    verbs={"connect": Noun(modules=("commands",), help="Connect a program, such as Claude Code, to memory.")},
    quick_nouns={"hook": "hook_command:run"},
)
