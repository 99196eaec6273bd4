"""Tools as people and programs work on them: all of the store, and those of one agent; MCP servers; secrets.

MCP servers are registered, looked at, approved and removed; a program that registers one acts as the admin. Secrets are
set, listed by name and removed, never read back.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from perdure.core.errors import InvalidInput, SourceInvalid
from perdure.core.ids import AgentId, McpServerId
from perdure.core.mcp import McpServer, McpTool, ToolListing
from perdure.core.secrets import Secret
from perdure.core.text.reprs import short_repr
from perdure.core.tools.rules import ToolRule
from perdure.core.tools.spec import Tool, ToolCode, ToolFilter, ToolOutcome
from perdure.domain.mcp import McpChanges, ServerOptions, ToolsByStatus
from perdure.domain.tools.units import NewTool, ToolChanges, ToolHit, ToolOptions
from perdure.library.checks import Page
from perdure.library.services.store import Services
from perdure.library.services.tools.mcp import McpState


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


class AsyncSecrets:
    """The secrets of one owner. Their values go to tools that name them, and nowhere else."""

    def __init__(self, services: Services, agent_id: AgentId | None = None) -> None:
        self._service, self._agent_id = services.secrets, agent_id

    async def set(self, name: str, value: str) -> Secret:
        """The secret, made or changed, encrypted.

        Args:
            name: letters, digits and `_`, as of an environment variable.
            value: at most 32,768 characters.
        Raises: InvalidInput, SecretKeyMissing, SecretUnreadable; NotFound: the agent is gone; StoreError.
        """
        return await self._service.set(self._agent_id, name, value)

    async def list(self) -> Sequence[Secret]:
        """Sorted by name; the values stay encrypted. Raises: NotFound: the agent is gone."""
        return await self._service.list(self._agent_id)

    async def delete(self, name: str) -> None:
        """Raises: NotFound."""
        await self._service.delete(self._agent_id, name)


class AsyncMcp:
    """The MCP servers of the store. A server is named by its name or id."""

    def __init__(self, services: Services) -> None:
        self._service = services.mcp

    async def add(self, name: str, *, check: bool = True, **options: Unpack[ServerOptions]) -> McpServer:
        """Register a server and approve the tools that it lists now.

        Args:
            name: begins the names of its tools, as in `name__tool`.
            check: whether the server has to answer now. If not, its tools are read and approved when it first answers.
            options: `url`: its address; or `command` and `args`: the program to run on this machine.
                `transport`: by default `stdio` for a command, else `streamable_http`; `sse` is for older servers.
                `token`: sent as `Authorization: Bearer ...`, or in the header `auth_header` as it is.
                `headers`: further headers. `environment`: the variables of the program, beside PATH, HOME and the like.
                Like the token they are stored encrypted; `secret:NAME` is a secret of the organisation.
                `trusted`: tools that it offers later need no approval, and its hints on what a tool does are believed.
                `private`: whether the url may lead to this machine or a private network; by default, if it does now.
        Raises: InvalidInput, AlreadyExists, McpUnreachable, ExtraMissing, SecretKeyMissing; NotFound: a secret.
        """
        return await self._service.add(name, check=check, **options)

    async def look(self, **options: Unpack[ServerOptions]) -> ToolListing:
        """The tools that a server lists, without registering it.

        Args:
            options: `url`, or `command` and `args`; `transport`, `token`, `auth_header`, `headers`, `environment`,
                `trusted`, `private`: as in `add`.
        Raises: InvalidInput, McpUnreachable, ExtraMissing, SecretKeyMissing; NotFound: a secret.
        """
        return await self._service.look(**options)

    async def list(self) -> Sequence[McpServer]:
        """The servers, in order of creation."""
        return await self._service.list()

    async def get(self, name: str) -> McpState:
        """A server and its tools. Raises: NotFound, naming what there is."""
        return await self._service.resolve(name)

    async def tools(self, name: str) -> Sequence[McpTool]:
        """A server's tools, approved or offered, by their names there. Raises: NotFound."""
        return (await self.get(name)).tools

    async def refresh(self, name: str) -> ToolsByStatus:
        """Connect anew and read a server's tools. A new one waits for approval, unless the server is trusted.

        Raises: NotFound, McpUnreachable, ExtraMissing, SecretKeyMissing, SecretUnreadable.
        """
        return await self._service.refresh(await self._id(name))

    async def approve(
        self, name: str, tools: Sequence[str] | None = None, *, expected: Mapping[str, str] | None = None
    ) -> ToolsByStatus:
        """Have agents see the present definitions of these tools, or of all. Missing tools are removed, removed ones
        come back.

        Args:
            tools: the server's names of them, or those that agents use.
            expected: name there -> digest of the definition that was looked at; it must still be the one.
        Raises: NotFound, Conflict; InvalidInput: one of them is unusable.
        """
        return await self._service.approve(await self._id(name), tools, expected=expected)

    async def update(self, name: str, /, **changes: Any) -> McpServer:
        """Change `name`, `command`, `args`, `url`, `auth_header`, `token`, `headers`, `environment`, `trusted` or
        `private` of a server and return it. Its tools keep their names; the next call connects anew. Without `private`,
        a new url decides it.

        Raises: NotFound, InvalidInput, AlreadyExists, SecretKeyMissing.
        """
        if unknown := changes.keys() - McpChanges.__slots__:
            raise InvalidInput(f"an MCP server has no field {', '.join(sorted(unknown))} to change")
        return await self._service.update(await self._id(name), McpChanges(**changes))

    async def remove(self, name: str) -> None:
        """Remove a server with its tools, which agents then have no more. Raises: NotFound."""
        await self._service.remove(await self._id(name))

    async def run(self, name: str, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolOutcome:
        """Call a tool of a server, to try it out. Raises: NotFound: no such server, or no such tool here."""
        return await self._service.run(await self._id(name), tool, arguments or {})

    async def _id(self, name: str) -> McpServerId:
        return (await self._service.resolve(name)).server.id
