"""A command, and the text that it stands for with arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from perdure.core.errors import MessageTooLarge
from perdure.features.plugins.definitions import Defined, Definition
from perdure.features.plugins.policy import Policy
from perdure.features.plugins.tool_names import names_elsewhere, resolve_tools

_PLACE = re.compile(r"\$(ARGUMENTS\b|[1-9]\d?(?!\d))")
"""Where arguments stand in the text of a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand(Defined):
    """A command that an agent's user may run.

    Args:
        tools: the names of the only tools that a run of it may call; None: all of the agent's.
    """

    tools: Sequence[str] | None = None

    @property
    def hint(self) -> str:
        """Which arguments it takes, for people."""
        return str(self.field("argument_hint", ""))

    @property
    def model(self) -> str:
        """The model that its definition names: a handle, or the name of a family; empty: the agent's."""
        return str(self.field("model", ""))

    @property
    def about(self) -> str:
        """What it does: its description, or the first line of its text."""
        first_line = self.definition.body.strip().partition("\n")[0].lstrip("# ")
        return self.definition.description or first_line[:200]


def make_command(definition: Definition, tools: Collection[str], policy: Policy) -> SlashCommand:
    """Return a command for an agent that has these tools."""
    permitted = [name for name in tools if all(map(policy.allows_tool, names_elsewhere(name)))]
    names = definition.fields.get("allowed_tools")
    if names is None:
        return SlashCommand(definition=definition, tools=permitted if len(permitted) < len(tools) else None)
    resolved = resolve_tools(names, permitted)
    return SlashCommand(definition=definition, tools=resolved.found, missing=resolved.missing)


def expand(command: SlashCommand, arguments: str, *, limit_chars: int) -> str:
    """Return the text that a command stands for: `$ARGUMENTS` is all of its arguments, `$1` the first of them. Where it
    has no place for them, they stand at its end. What the arguments hold is not looked at again.

    Raises: MessageTooLarge.
    """
    body, places = command.definition.body, _PLACE.findall(command.definition.body)
    if (size := len(body) + len(places) * len(arguments)) > limit_chars:
        raise MessageTooLarge(size=size, limit=limit_chars)
    try:
        words = shlex.split(arguments)
    except ValueError:  # a quote without its other half
        words = arguments.split()

    def fill(found: re.Match[str]) -> str:
        place = found[1]
        if place == "ARGUMENTS":
            return arguments
        return words[int(place) - 1] if int(place) <= len(words) else ""

    text = _PLACE.sub(fill, body)
    if arguments and not places:
        text = f"{text}\n\nARGUMENTS: {arguments}"
    head = f"The command /{command.name} is run."
    if command.tools is not None:
        head += f" For it you may call only these tools: {', '.join(command.tools) or 'none'}."
    return f"[{head}]\n\n{text}"
