"""The prompts that a person chooses in a client: `catch_up` and `handoff`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from perdure.features.mcp_server.memory import MemoryTools


@dataclass(frozen=True, slots=True)
class MemoryPrompt:
    """A prompt.

    Args:
        arguments: name -> what it is for; none is required.
    """

    description: str
    arguments: Mapping[str, str]


PROMPTS: Mapping[str, MemoryPrompt] = {
    "catch_up": MemoryPrompt(
        "Begin with what is remembered of this project and of you.", {"about": "The task at hand."}
    ),
    "handoff": MemoryPrompt(
        "Write a note that lets a later session go on from here.", {"next": "What is to come next."}
    ),
}
ARGUMENT_CHARS = 10_000


async def render_prompt(memory: MemoryTools, name: str, arguments: Mapping[str, str]) -> str:
    """Return the text of a prompt. Raises: NotFound; InvalidInput: an argument that it does not have, or too long."""
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise NotFound("prompt", name, hint=f"there are {', '.join(PROMPTS)}")
    for key, value in arguments.items():
        if key not in prompt.arguments:
            raise InvalidInput(f"{key!r:.80} is no argument of {name}: it has {', '.join(prompt.arguments)}")
        if len(value) > ARGUMENT_CHARS:
            raise InvalidInput(f"{key} has {len(value):,} characters, the limit is {ARGUMENT_CHARS:,}")
    if name == "catch_up":
        known = await memory.call("memory_context", {"about": arguments.get("about", "")})
        return f"This is what is remembered from earlier sessions:\n\n{known}\n\nSay in a few sentences where we stand."
    next_ = arguments.get("next", "").strip()
    return (
        "Write a handoff with the tool `note` (kind handoff) for whoever goes on with this work: what is done and under"
        " way, what comes next, open questions, the files that matter. Be exact; name paths and commands."
        + (f" What comes next: {next_}" if next_ else "")
    )
