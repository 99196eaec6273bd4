"""A command, and the text that it stands for with arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from perdure.core.errors import MessageTooLarge
from perdure.features.plugins.definitions import Definition, UsableDefinition
from perdure.features.plugins.policy import Policy
from perdure.features.plugins.tool_names import ResolvedTools, names_elsewhere, resolve_forbidden, resolve_tools

_PLACE = re.compile(r"\\\$(?=ARGUMENTS\b|\d)|\$(?:(ARGUMENTS)(?:\[(\d{1,2})\]|\b)|(\d{1,2})(?!\d))")
"""Where arguments stand in the text of a command; with a backslash before it the text means itself."""
_QUOTED = re.compile(r"""\\(.)|"([^"\\]*(?:\\.[^"\\]*)*)"|'([^']*)'""", re.DOTALL)
_WORD = re.compile(r"""(?:[^ \t\r\n"'\\]+|\\.|"[^"\\]*(?:\\.[^"\\]*)*"|'[^']*')+""", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand(UsableDefinition):
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
        """Its description, else the first line of its text."""
        first_line = self.definition.body.strip().partition("\n")[0].lstrip("# ")
        return self.definition.description or first_line[:200]


def make_command(definition: Definition, tools: Collection[str], policy: Policy) -> SlashCommand:
    """Return a command for an agent that has these tools."""
    permitted = [name for name in tools if all(map(policy.allows_tool, names_elsewhere(name)))]
    names, plugin = definition.fields.get("allowed_tools"), definition.plugin
    allowed = ResolvedTools(permitted, ()) if names is None else resolve_tools(names, permitted, plugin=plugin)
    forbidden = resolve_forbidden(definition.fields.get("disallowed_tools", ()), permitted, plugin=plugin)
    found, missing = {*allowed.found} - {*forbidden.found}, [*allowed.missing, *forbidden.missing]
    is_any = names is None and found == {*tools}
    return SlashCommand(definition=definition, tools=None if is_any else sorted(found), missing=missing)


def expand(command: SlashCommand, arguments: str, words: Sequence[str] | None = None, *, limit_chars: int) -> str:
    """Return a command's text with its arguments filled in: `$ARGUMENTS` is all of them as written, `$1` or
    `$ARGUMENTS[0]` the first; a text with `$0` counts from 0. Without such a place they are added at the end. Arguments
    are not expanded again.

    Args:
        words: the arguments one by one; None: as a shell would part them, quotes keep words together.
    Raises: MessageTooLarge.
    """
    body = command.definition.body
    places = [found for found in _PLACE.finditer(body) if found[1] or found[3]]
    if (size := len(body) + len(places) * len(arguments)) > limit_chars:
        raise MessageTooLarge(size=size, limit=limit_chars)
    if words is None:
        words = split_words(arguments) if any(found[2] or found[3] for found in places) else ()
    given, first = words, 0 if any(found[3] == "0" for found in places) else 1

    def fill(found: re.Match[str]) -> str:
        """Return the arguments that a `$` stands for."""
        if found[2] or found[3]:
            place = int(found[2]) if found[2] else int(found[3]) - first
            return given[place] if 0 <= place < len(given) else ""
        return arguments if found[1] else "$"

    text = _PLACE.sub(fill, body)
    if arguments and not places:
        text = f"{text}\n\nARGUMENTS: {arguments}"
    head = f"The command /{command.name} is run."
    if command.tools is not None:
        head += f" For it you may call only these tools: {', '.join(command.tools) or 'none'}."
    return f"[{head}]\n\n{text}"


def split_words(text: str) -> Sequence[str]:
    """Return the words of a text by the rules of `shlex`, whose time grows with the square of a word; a text with an
    unclosed quote is split at blanks."""
    if _WORD.sub("", text).strip(" \t\r\n"):
        return text.split()
    return [_QUOTED.sub(_unquote, word) for word in _WORD.findall(text)]


def _unquote(found: re.Match[str]) -> str:
    """What an escaped character or a text in quotes stands for."""
    escaped, double, single = found.groups()
    return escaped or single or re.sub(r'\\(["\\])', r"\1", double or "")
