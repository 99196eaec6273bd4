"""Tools as people and programs work on them: all of the store, and those of one agent."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from perdure.core.errors import InvalidInput, SourceInvalid
from perdure.core.ids import AgentId
from perdure.core.text.reprs import short_repr
from perdure.core.tools.rules import ToolRule
from perdure.core.tools.spec import Tool, ToolCode, ToolFilter, ToolOutcome
from perdure.domain.tools.search import ToolHit
from perdure.domain.tools.units import NewTool, ToolChanges, ToolOptions
from perdure.library.paging import Page
from perdure.library.services import Services


class AsyncTools:
    """All tools of the store. An agent has those that are attached to it."""

    def __init__(self, services: Services) -> None:
        self._service = services.tools

    async def create(self, source: str | Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
        """Create a tool from a source: Python text, or a function whose text is used. It runs in the sandbox, not here.
        The same name and source again returns the existing tool.

        Args:
            options: `name`: the function of the source that is the tool; by default the last public one.
                `description`, `schema`: replace what the source says. `tags`, `metadata`: your own data.
                `return_limit_chars`: how much of a result the model sees. `requires_approval`: a person approves each
                call. `idempotent`: a call that a crash interrupted is repeated. `parallel`: several calls of one answer
                may run at once. `timeout_s`, `memory_mb`: limits of one call. `requirements`: packages for pip.
                `environment`: variables; `secret:NAME` is a secret of the organisation. `network`: hosts it may reach.
        Raises: SourceInvalid, SchemaMismatch, InvalidInput, ToolBuiltIn; AlreadyExists: another tool has the name, or
            the same one is there with other options.
        """
        return (await self._service.create(_new_tool(source, options), fields=tuple(options))).tool

    async def upsert(self, source: str | Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
        """Create the tool of this name, or change it. Options and Raises: as `create`."""
        return (await self._service.upsert(_new_tool(source, options))).tool

    async def get(self, name_or_id: str) -> Tool:
        """The tool of this name or id. Raises: NotFound, naming what there is."""
        return (await self._service.get(name_or_id)).tool

    async def code(self, name_or_id: str) -> ToolCode | None:
        """The code of a custom tool; None: this tool has no source. Its environment has all names, but only the values
        that refer to secrets; the others are encrypted and never shown. Raises: NotFound."""
        code = (await self._service.get(name_or_id)).code
        return None if code is None else replace(code, environment=code.visible_environment, sealed={})

    async def list(
        self, *, text: str | None = None, types: Sequence[str] | None = None, limit: int = 200, after: str | None = None
    ) -> Sequence[Tool]:
        """A page of the tools, newest first; `after` is the id of the last one of the page before.

        Args:
            text: a part of the name, in any case.
            types: the wire's names of kinds: "custom", "letta_core", "letta_builtin", "external_mcp", ...
        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no tool `after`.
        """
        where = ToolFilter(text=text, types=None if types is None else tuple(types))
        found = await self._service.list(where, Page(limit, ascending=False, after=after))
        return [state.tool for state in found]

    async def search(self, query: str, *, limit: int = 10) -> Sequence[ToolHit]:
        """The tools whose name, tags or description have the words, best first."""
        return [hit for hit, _ in await self._service.search(query, ToolFilter(), limit=limit)]

    async def update(self, name_or_id: str, **changes: Unpack[ToolChanges]) -> Tool:
        """Change fields of a tool and return it; its agents have the change from their next model call on.

        Args:
            changes: the options of `create`, `source` and `source_type`. A missing field stays. A new source also sets
                name, description and schema.
        Raises: NotFound, SourceInvalid, SchemaMismatch, InvalidInput, AlreadyExists; ToolBuiltIn: of a tool that is
            made of no source only tags, metadata, return_limit_chars and requires_approval can be changed.
        """
        return (await self._service.update(name_or_id, changes)).tool

    async def delete(self, name_or_id: str) -> None:
        """Take the tool from all agents and remove it. Raises: NotFound, ToolBuiltIn."""
        await self._service.delete(name_or_id)

    async def test(
        self,
        name_or_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> ToolOutcome:
        """Run a tool with these arguments, with the checks, limits and sandbox of an agent's call.

        Args:
            progress: receives lines that say what the call waits for, such as the installation of requirements.
        Raises: NotFound, SandboxUnavailable; InvalidInput: a tool of memory, which needs an agent's run, or one that
            takes `agent_state`, which `agent.tools.run` runs.
        """
        return await self._service.run(name_or_id, arguments or {}, progress=progress)

    async def test_source(
        self,
        source: str | Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[ToolOptions],
    ) -> ToolOutcome:
        """Run a source with these arguments, without storing it. Options and Raises: as `create` and `test`."""
        return await self._service.run_source(_new_tool(source, options), arguments or {}, progress=progress)


class AsyncAgentTools:
    """The tools of one agent. Every method raises NotFound when the agent is gone."""

    __repr__ = short_repr("_agent_id")

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._service, self._agent_id = services.tools, agent_id

    async def list(self) -> Sequence[Tool]:
        """The agent's tools, sorted by name."""
        return [state.tool for state in await self._service.list_of_agent(self._agent_id)]

    async def attach(self, tool: str | Callable[..., Any]) -> Tool:
        """Give the agent a tool: the one of a name or id, or a Python function, which runs in this process. Attaching
        twice is no error.

        Raises: NotFound, naming those there are; InvalidInput: the function can't be a tool; AlreadyExists: another
            kind of tool has its name.
        """
        return await self._service.attach(self._agent_id, tool)

    async def detach(self, name_or_id: str) -> None:
        """Take a tool away from the agent. Raises: NotFound: it has no such tool."""
        await self._service.detach(self._agent_id, name_or_id)

    async def run(self, name_or_id: str, arguments: Mapping[str, Any] | None = None) -> ToolOutcome:
        """Run a tool for this agent, with its secrets, and with its blocks if the tool takes them.

        If the tool changes blocks, the changes are stored with you as their author.

        Raises: NotFound: the agent has no such tool; SandboxUnavailable, InvalidInput.
        """
        return await self._service.run_of_agent(self._agent_id, name_or_id, arguments or {})


class AsyncAgentRules:
    """The rules of one agent. They hold from its next answer on."""

    __repr__ = short_repr("_agent_id")

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._service, self._agent_id = services.agents, agent_id

    async def list(self) -> Sequence[ToolRule]:
        """The rules, in the order in which they were set. Raises: NotFound."""
        return await self._service.list_rules(self._agent_id)

    async def missing(self) -> Sequence[str]:
        """The tools that rules name but the agent lacks; until then the rules have no effect. Raises: NotFound."""
        return await self._service.list_missing_tools(self._agent_id)

    async def set(self, rules: Iterable[ToolRule | Mapping[str, Any]]) -> Sequence[ToolRule]:
        """These in place of all that there are; an empty list takes them away.

        Raises: ToolRulesInvalid: one can't be read, two contradict each other, its arguments don't fit the tool, and
            nothing was changed; NotFound.
        """
        return await self._service.set_rules(self._agent_id, rules)


def source_of(function: Callable[..., Any]) -> str:
    """The text of a function, without the decorators that mark it as a tool. Raises: InvalidInput: there is none."""
    if getattr(function, "__name__", "") == "<lambda>":
        raise SourceInvalid("a lambda can't be a tool: it has no name and no docstring; write `def name(...):`")
    try:
        text = textwrap.dedent(inspect.getsource(function))
        node = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError) as error:
        name = getattr(function, "__name__", repr(function))
        raise InvalidInput(f"the source of {name:.80} can't be read ({error}): give it as text") from error
    lines = text.splitlines(keepends=True)
    for decorator in getattr(node, "decorator_list", ()):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called).rpartition(".")[2] == "tool":
            for line in range(decorator.lineno - 1, decorator.end_lineno or decorator.lineno):
                lines[line] = ""
    return "".join(lines)


def _new_tool(source: str | Callable[..., Any], options: Mapping[str, Any]) -> NewTool:
    """The values of a new tool. Raises: InvalidInput: no such option, or no source to read."""
    if unknown := [name for name in options if name not in ToolOptions.__annotations__]:
        raise InvalidInput(
            f"a tool has no {', '.join(map(repr, unknown))}: there are {', '.join(ToolOptions.__annotations__)}"
        )
    return NewTool(source=source_of(source) if callable(source) else source, **options)
