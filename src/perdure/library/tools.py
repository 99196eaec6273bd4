"""Tools as people and programs work on them: all of the store, and those of one agent."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound, SourceInvalid
from perdure.core.ids import AgentId, ToolId, is_id
from perdure.core.tools.environment import without_values
from perdure.core.tools.spec import Tool, ToolCode, ToolFilter, ToolOutcome
from perdure.domain.tools.search import ToolHit, search_tools
from perdure.domain.tools.units import (
    NewTool,
    ToolChanges,
    ToolOptions,
    create_tool,
    delete_tool,
    update_tool,
    upsert_tool,
)
from perdure.engine.conversations.reset import delete
from perdure.library.checks import LIMIT_MAX, USER, check_limit, check_text
from perdure.library.tool_runs import check_sandbox_limits, run_source, run_tool
from perdure.storage.tx import Tx

__all__ = ["AsyncAgentTools", "AsyncTools", "ToolOptions", "source_of"]

NAMED_TOOLS = 20


class AsyncTools:
    """All tools of the store. An agent has those that are attached to it."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def create(self, source: str | Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
        """A new tool of a source: Python text, or a function whose text is taken. It runs in the sandbox, not here.

        The same name and source again is the tool that is there.
        Raises: SourceInvalid, SchemaMismatch, InvalidInput, ToolBuiltIn; AlreadyExists: another tool has the name, or
            the same one is there with other options than are given.
        """
        return await self._make(partial(create_tool, given=tuple(options)), source, options)

    async def upsert(self, source: str | Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
        """The tool of this name, made or changed to what is given. Raises: as `create`."""
        return await self._make(upsert_tool, source, options)

    async def _make(
        self, unit: Callable[..., Tool], source: str | Callable[..., Any], options: Mapping[str, Any]
    ) -> Tool:
        ports = self._app.ports
        new = _new(source, options)
        check_sandbox_limits(self._app, memory_mb=new.memory_mb, timeout_s=new.timeout_s)
        return await ports.store.write(
            unit, new, ToolId(ports.ids.new("tool")), cipher=ports.cipher, at=ports.clock.now()
        )

    async def get(self, name_or_id: str) -> Tool:
        """Raises: NotFound, naming what there is."""
        check_text("a tool's name or id", name_or_id)
        return await self._app.store.read(_find, name_or_id)

    async def code(self, name_or_id: str) -> ToolCode | None:
        """What a custom tool runs; None: this tool is made of no source. Of its environment the names, and the values
        that are references to secrets; the others are encrypted and shown nowhere. Raises: NotFound."""
        check_text("a tool's name or id", name_or_id)
        code = await self._app.store.read(lambda tx: tx.tools.code(_find(tx, name_or_id).id))
        return None if code is None else without_values(code)

    async def list(
        self, *, text: str | None = None, types: Sequence[str] | None = None, limit: int = 200, after: str | None = None
    ) -> Sequence[Tool]:
        """Newest first; `after` is the id of the last one of the page before.

        Args:
            text: a part of the name, in any case.
            types: the wire's names of kinds: "custom", "letta_core", "letta_builtin", "external_mcp", ...
        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no tool `after`.
        """
        check_limit(limit)
        for what, value in (("text", text), ("after", after)):
            if value is not None:
                check_text(what, value)
        where = ToolFilter(text=text, types=None if types is None else tuple(types))
        start = None if after is None else ToolId(after)
        return await self._app.store.read(lambda tx: tx.tools.page(where=where, limit=limit, after=start))

    async def search(self, query: str, *, limit: int = 10) -> Sequence[ToolHit]:
        """The tools whose name, tags or description have the words, best first."""
        check_limit(limit)
        check_text("query", query)
        return await self._app.store.read(search_tools, query, where=ToolFilter(), limit=limit)

    async def update(self, name_or_id: str, **changes: Unpack[ToolChanges]) -> Tool:
        """The tool as changed; its agents have it so from their next model call on. What is not given stays.

        Raises: NotFound, SourceInvalid, SchemaMismatch, InvalidInput, AlreadyExists; ToolBuiltIn: of a tool that is
            made of no source only tags, metadata, return_limit_chars and requires_approval can be changed.
        """
        check_text("a tool's name or id", name_or_id)
        check_sandbox_limits(self._app, memory_mb=changes.get("memory_mb"), timeout_s=changes.get("timeout_s"))
        now, cipher = self._app.ports.clock.now(), self._app.cipher
        return await self._app.store.write(
            lambda tx: update_tool(tx, _find(tx, name_or_id).id, changes, cipher=cipher, at=now)
        )

    async def delete(self, name_or_id: str) -> None:
        """Take the tool from all agents and remove it. Raises: NotFound, ToolBuiltIn."""
        check_text("a tool's name or id", name_or_id)
        await delete(self._app.ports, lambda tx: delete_tool(tx, _find(tx, name_or_id).id))

    async def test(
        self,
        name_or_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> ToolOutcome:
        """What a tool does with these arguments: the same checks, limits and sandbox as when an agent calls it.

        Args:
            progress: is told lines about what is waited for, such as the installation of requirements.
        Raises: NotFound, SandboxUnavailable; InvalidInput: a tool of memory, which needs an agent's run, or one that
            takes `agent_state`, which `agent.tools.run` runs.
        """
        tool = await self.get(name_or_id)
        return await run_tool(self._app, tool, arguments or {}, author=USER, progress=progress)

    async def test_source(
        self,
        source: str | Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[ToolOptions],
    ) -> ToolOutcome:
        """What a source does with these arguments; nothing is stored. Raises: as `create` and `test`."""
        return await run_source(self._app, _new(source, options), arguments or {}, author=USER, progress=progress)


class AsyncAgentTools:
    """The tools of one agent."""

    def __init__(self, app: App, agent_id: AgentId) -> None:
        self._app, self._agent_id = app, agent_id

    async def list(self) -> Sequence[Tool]:
        """Sorted by name."""
        return await self._app.store.read(lambda tx: tx.tools.of_agent(self._agent_id))

    async def attach(self, name_or_id: str) -> Tool:
        """Give the agent a tool. Attaching twice is no error. Raises: NotFound, naming those there are."""
        check_text("a tool's name or id", name_or_id)

        def unit(tx: Tx) -> Tool:
            tool = _find(tx, name_or_id)
            tx.tools.attach(self._agent_id, tool.spec.name)
            return tool

        return await self._app.store.write(unit)

    async def detach(self, name_or_id: str) -> None:
        """Take a tool away from the agent. Raises: NotFound: it has no such tool."""
        check_text("a tool's name or id", name_or_id)
        await self._app.store.write(lambda tx: tx.tools.detach(self._agent_id, _find(tx, name_or_id).spec.name))

    async def run(self, name_or_id: str, arguments: Mapping[str, Any] | None = None) -> ToolOutcome:
        """What a tool does for this agent: with its secrets, and its blocks if the tool takes them; what the tool
        changes of those is stored, as an edit of yours.

        Raises: NotFound: there is no such tool, or the agent hasn't got it; SandboxUnavailable, InvalidInput.
        """
        check_text("a tool's name or id", name_or_id)

        def unit(tx: Tx) -> Tool:
            tool = _find(tx, name_or_id)
            own = {one.id: one.spec.name for one in tx.tools.of_agent(self._agent_id)}
            if tool.id not in own:
                raise NotFound("tool of this agent", name_or_id, hint=f"it has {', '.join(own.values()) or 'none'}")
            return tool

        tool = await self._app.store.read(unit)
        return await run_tool(self._app, tool, arguments or {}, agent_id=self._agent_id, author=USER)


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


def _new(source: str | Callable[..., Any], options: Mapping[str, Any]) -> NewTool:
    if unknown := [name for name in options if name not in ToolOptions.__annotations__]:
        raise InvalidInput(
            f"a tool has no {', '.join(map(repr, unknown))}: there are {', '.join(ToolOptions.__annotations__)}"
        )
    return NewTool(source=source_of(source) if callable(source) else source, **options)


def _find(tx: Tx, name_or_id: str) -> Tool:
    if is_id("tool", name_or_id):
        return tx.tools.get(ToolId(name_or_id))
    tool = tx.tools.find_by_name(name_or_id)
    if tool is None:
        known = ", ".join(known.spec.name for known in tx.tools.list(limit=min(NAMED_TOOLS, LIMIT_MAX)))
        raise NotFound("tool", name_or_id, hint=f"there are {known}")
    return tool
