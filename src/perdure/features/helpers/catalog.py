"""The helpers that an agent may call: their definitions, the tools that each one gets, and why one can't be called."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Final, Literal, cast, get_args

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, ToolError
from perdure.core.messages import SEND_MESSAGE
from perdure.core.text.forms import match_form, name_form
from perdure.core.tools.engine_specs import CHECKPOINT_TOOL, tool_writes_memory
from perdure.features.helpers.claude_code import MEMORY_SCOPES, field_notes, preload_skills
from perdure.features.plugins.definitions import Definition, Definitions, UsableDefinition
from perdure.features.plugins.layers import find_definitions, no_definitions, project_of, settings_of
from perdure.features.plugins.policy import load_policy
from perdure.features.plugins.tool_names import UNUSED_TOOLS, names_elsewhere, resolve_forbidden, resolve_tools
from perdure.storage.tx import Tx

RUN_HELPER: Final = "run_helper"
"""The tool that calls helpers."""
FORK: Final = "fork"
"""The built-in helper that begins with the whole conversation of the agent that calls."""

HelperMemory = Literal["own", "shared", "read-only", "agent"]
"""What a helper knows: a memory of its own; the blocks and archives of the agent that calls, with or without the right
to change them; or it is that agent itself, in a new conversation."""
MEMORIES: Final[tuple[HelperMemory, ...]] = get_args(HelperMemory)

DESCRIPTION_CHARS = 400
"""The most characters of a description in the list that agents read."""
LISTED_MAX = 100
"""The most helpers in that list."""
TOOLS_SHOWN = 30
"""The most tools of one in that list."""
NAMES_SHOWN, NEAR_MAX = 30, 8
"""The most names in the answer to an unknown one: of any helpers, and of those that are near it."""
_SERVER_TAG = "mcp:"
"""The beginning of the tag that the tools of an MCP server have; its name follows."""


class HelperUnknown(ToolError):
    """An agent has no helper of this name."""

    def __init__(self, name: str, known: Mapping[str, Helper], problem: str = "") -> None:
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        words = [word for word in match_form(name).replace("-", " ").split() if len(word) > 2]
        near = near or [one.name for one in known.values() if any(word in match_form(one.line) for word in words)]
        left = f" and {len(known) - NAMES_SHOWN:,} more" if len(known) > NAMES_SHOWN else ""
        there = f"there are {', '.join(list(known)[:NAMES_SHOWN]) or 'none'}{left}"
        hint = f"did you mean {' or '.join(near[:NEAR_MAX])}?" if near else there
        super().__init__(f"helper {name[:80]!r} can't be called: {problem or 'there is none of this name'}; {hint}")
        self.name, self.near = name, near[:NEAR_MAX]


@dataclass(frozen=True, slots=True, kw_only=True)
class Helper(UsableDefinition):
    """A helper that one agent may call.

    Args:
        tools: the names of the tools that it gets.
        missing: what its definition names beside these, or takes away, and nothing here is called so.
        skills: the texts of the skills that it reads at once.
        notes: what of its definition has no effect, or another one than elsewhere.
        problem: why it can't be called; empty: it can.
    """

    tools: Sequence[str] = ()
    skills: Sequence[str] = ()
    notes: Sequence[str] = ()
    problem: str = ""

    @property
    def is_fork(self) -> bool:
        """Whether it begins with the conversation of the agent that calls."""
        return self.definition.layer == "built-in" and self.name == FORK

    @property
    def memory(self) -> HelperMemory:
        """What it knows; see `HelperMemory`."""
        memory = self.field("memory", "own")
        return cast(HelperMemory, "agent" if self.is_fork else "own" if memory in MEMORY_SCOPES else memory)

    @property
    def prompt(self) -> str:
        """What it is told: the text of its definition, and skills."""
        return "\n\n".join(filter(None, (self.definition.body, *self.skills)))

    @property
    def line(self) -> str:
        """The line that agents read: `name: description (tools)`."""
        text = self.definition.description or "no description"
        if len(text) > DESCRIPTION_CHARS:
            text = f"{text[: DESCRIPTION_CHARS - 1]}…"
        left = f" and {len(self.tools) - TOOLS_SHOWN} more" if len(self.tools) > TOOLS_SHOWN else ""
        tools = "your tools" if self.is_fork else ", ".join(self.tools[:TOOLS_SHOWN]) or "no tools"
        return f"{self.name}: {text} ({tools}{left})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """All helpers of an agent by their names, also those that can't be called, and what was `found` of definitions."""

    by_name: Mapping[str, Helper]
    found: Definitions = field(default_factory=Definitions)

    @property
    def callable(self) -> Mapping[str, Helper]:
        """Those that can be called."""
        return {name: helper for name, helper in self.by_name.items() if not helper.problem}

    def get(self, name: str) -> Helper:
        """Return the helper of exactly this name. Raises: HelperUnknown, with the nearest names."""
        helper = self.by_name.get(name_form(name))
        if helper is not None and not helper.problem:
            return helper
        problem = self.found.why_refused(name) if helper is None else helper.problem
        if not problem and not self.by_name:  # the policy can't be read
            problem = "; ".join(map(str, self.found.problems))
        raise HelperUnknown(name, self.callable, problem)


def load_roster(tx: Tx, agent: Agent, only: Sequence[str] | None = None) -> Roster:
    """Return the helpers of an agent. Where the policy can't be read there are none, and a problem.

    Args:
        only: the names of the tools that the caller may call; None: all of the agent's.
    """
    settings = settings_of(tx)
    try:
        found, policy = find_definitions("agents", settings, project_of(agent)), load_policy(settings)
    except InvalidInput as error:
        return Roster(by_name={}, found=no_definitions(error, settings))
    unused = {name for names in UNUSED_TOOLS(tx) for name in names}
    tools = [one for one in tx.tools.list_by_agent(agent.id) if only is None or one.name in only]
    tools = [one for one in tools if one.name not in unused]
    allowed = [tool for tool in tools if all(map(policy.allows_tool, names_elsewhere(tool.name)))]
    allowed = [one for one in allowed if one.name != SEND_MESSAGE]
    codes = tx.tools.codes([one.id for one in allowed if one.spec.kind == "custom"])
    writing = {one.name for one in allowed if one.spec.kind == "memory" and tool_writes_memory(one.name)}
    writing |= {CHECKPOINT_TOOL}  # its notes are the agent's, too
    writing |= {one.name for one in allowed if one.id in codes and codes[one.id].takes_agent}
    names = [one.name for one in allowed]
    servers = {tag.removeprefix(_SERVER_TAG) for one in allowed for tag in one.tags if tag.startswith(_SERVER_TAG)}
    wants_skills = any("skills" in one.fields for one in found.by_name.values())
    skills = find_definitions("skills", settings, project_of(agent)).by_name if wants_skills else {}
    helpers = {name: make_helper(one, names, writing, servers, skills) for name, one in found.by_name.items()}
    return Roster(by_name=helpers, found=found)


def make_helper(
    definition: Definition,
    allowed: Sequence[str],
    writing: Collection[str],
    servers: Set[str],
    skills: Mapping[str, Definition],
) -> Helper:
    """Return a helper with what it gets of the tools of the agent that calls.

    Args:
        allowed: the names of those that helpers may have.
        writing: those of them that change memory.
        servers: the names of the MCP servers that have some of them.
        skills: name -> a skill that it may read.
    """
    texts, notes = preload_skills(definition, skills)
    helper = Helper(definition=definition, skills=texts, notes=[*field_notes(definition), *notes])
    plugin = definition.plugin
    if helper.memory not in MEMORIES:
        problem = f"{definition.path or 'PERDURE_HELPERS'}: memory is {helper.memory!r:.60}: use {', '.join(MEMORIES)}"
        return replace(helper, problem=problem)
    wanted = helper.field("tools")
    if wanted is None:
        names, missing = {name for name in allowed if name != RUN_HELPER or helper.is_fork}, []
    else:
        resolved = resolve_tools(wanted, allowed, plugin=plugin)
        names, missing = set(resolved.found), [*resolved.missing]
    absent = [name for name in missing if "__" in name]
    absent += [one for one in helper.field("mcp_servers", ()) if servers.isdisjoint({one, f"{plugin}-{one}"})]
    forbidden = resolve_forbidden(helper.field("disallowed_tools", ()), allowed, plugin=plugin)
    names -= {*forbidden.found}
    missing += forbidden.missing
    if helper.memory == "read-only":  # a helper of its own could write
        names -= {*writing, RUN_HELPER}
    problem = f"it needs {', '.join(absent)}, and you have no such tools of an MCP server" if absent else ""
    if wanted and not names and definition.layer == "built-in":
        problem = f"you have none of its tools: {', '.join(wanted)}"
    return replace(helper, tools=sorted(names), missing=missing, problem=problem)
