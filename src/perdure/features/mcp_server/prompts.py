"""The prompts that a person chooses in a client: `catch_up` and `handoff`."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_types import Prompt, PromptArgument

from perdure.core.errors import InvalidInput, NotFound
from perdure.features.mcp_server.memory import MemoryTools

ARGUMENT_CHARS = 10_000


def _prompt(name: str, description: str, argument: str, about: str) -> Prompt:
    arguments = [PromptArgument(name=argument, description=about, required=False)]
    return Prompt(name=name, description=description, arguments=arguments)


PROMPTS: Mapping[str, Prompt] = {
    "catch_up": _prompt(
        "catch_up", "Begin with what is remembered of this project and of you.", "about", "The task at hand."
    ),
    "handoff": _prompt(
        "handoff", "Write a note that lets a later session go on from here.", "next", "What is to come next."
    ),
}


async def render_prompt(memory: MemoryTools, name: str, arguments: Mapping[str, str]) -> str:
    """Return the text of a prompt. Raises: NotFound; InvalidInput: an argument that it does not have, or too long."""
    if (prompt := PROMPTS.get(name)) is None:
        raise NotFound("prompt", name, hint=f"there are {', '.join(PROMPTS)}")
    known = [argument.name for argument in prompt.arguments or ()]
    for key, value in arguments.items():
        if key not in known:
            raise InvalidInput(f"{key!r:.80} is no argument of {name}: it has {', '.join(known)}")
        if len(value) > ARGUMENT_CHARS:
            raise InvalidInput(f"{key} has {len(value):,} characters, the limit is {ARGUMENT_CHARS:,}")
    if name == "catch_up":
        context = await memory.call("memory_context", {"about": arguments.get("about", "")})
        return (
            f"This is what is remembered from earlier sessions:\n\n{context}\n\nSay in a few sentences where we stand."
        )
    next_ = arguments.get("next", "").strip()
    return (
        "Write a handoff with the tool `note` (kind handoff) for whoever goes on with this work: what is done and under"
        " way, what comes next, open questions, the files that matter. Be exact; name paths and commands."
        + (f" What comes next: {next_}" if next_ else "")
    )
