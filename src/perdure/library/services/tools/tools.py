"""Tools: of the whole store, those of an agent, and one run of a tool by hand, to try it out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.app import App, Functions
from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, NotFound, PerdureError, SandboxUnavailable, ToolError
from perdure.core.ids import AgentId, ConversationId, RunId, ToolId, is_id
from perdure.core.ports import CallContext
from perdure.core.tools.arguments import fit_arguments
from perdure.core.tools.source import needs_agent
from perdure.core.tools.spec import Tool, ToolCode, ToolFilter, ToolOutcome
from perdure.domain.blocks.units import change_blocks
from perdure.domain.tools.environment import load_inputs
from perdure.domain.tools.units import (
    NewTool,
    ToolChanges,
    ToolHit,
    build_tool,
    create_tool,
    delete_tool,
    put_tools,
    search_tools,
    update_tool,
    upsert_tool,
)
from perdure.engine.conversations.reset import delete
from perdure.engine.run.tool_calls import call_by_hand
from perdure.library.checks import Page, check_limit, check_page, check_text, outside
from perdure.storage.tx import Tx

NAMED_TOOLS = 20
UNSAVED = ToolId("tool-tried")
"""Stands for the id of a tool that is not stored."""

Changes = ToolChanges | Callable[[Tool], ToolChanges]
"""New values of some fields, or a function that makes them from the tool as it is."""


@dataclass(frozen=True, slots=True)
class ToolState:
    """A tool and what it runs; `code` is None for a tool that is made of no source."""

    tool: Tool
    code: ToolCode | None


class ToolService:
    """The operations on tools. A tool is named by its id or its name."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def create(self, new: NewTool, *, fields: Sequence[str] | None = None) -> ToolState:
        """A new tool of a source. The same name and source again is the tool that is there.

        Args:
            fields: which fields of `new` must be equal in a tool that is there; by default those without the usual
                value.
        Raises: SourceInvalid, SchemaMismatch, InvalidInput, ToolBuiltIn; AlreadyExists: another tool has the name, or
            the same one is there with other fields.
        """
        return await self._save(new, lambda tx, *args, **ports: create_tool(tx, *args, fields=fields, **ports))

    async def upsert(self, new: NewTool, *, fields: Sequence[str] | None = None) -> ToolState:
        """The tool of this name, new or changed. Raises: as `create`.

        Args:
            fields: the fields to replace of a tool that is there; by default all.
        """
        return await self._save(new, lambda tx, *args, **ports: upsert_tool(tx, *args, fields=fields, **ports))

    async def get(self, name_or_id: str) -> ToolState:
        """Raises: NotFound, naming what there is."""
        check_text("a tool's name or id", name_or_id)
        return await self._app.ports.store.read(lambda tx: _load_states(tx, [_resolve_tool(tx, name_or_id)])[0])

    async def list(self, where: ToolFilter, page: Page) -> Sequence[ToolState]:
        """A page of tools. Raises: InvalidInput; NotFound: the page begins at no tool; the filter's agent."""
        check_page(page, text=where.text)
        return await self._app.ports.store.read(
            lambda tx: _load_states(tx, tx.tools.page(where=where, **page.arguments))
        )

    async def count(self, where: ToolFilter) -> int:
        """How many tools the filter lets through."""
        return await self._app.ports.store.read(lambda tx: tx.tools.count(where))

    async def search(self, query: str, where: ToolFilter, *, limit: int) -> Sequence[tuple[ToolHit, ToolCode | None]]:
        """The tools whose name, tags or description have the words, best first; without words the newest."""
        check_limit(limit)
        check_text("query", query)

        def load(tx: Tx) -> Sequence[tuple[ToolHit, ToolCode | None]]:
            tx.limits.check("query_limit_chars", len(query))
            hits = search_tools(tx, query, where=where, limit=limit)
            states = _load_states(tx, [hit.tool for hit in hits])
            return [(replace(hit, tool=one.tool), one.code) for hit, one in zip(hits, states, strict=True)]

        return await self._app.ports.store.read(load)

    async def update(self, name_or_id: str, changes: Changes) -> ToolState:
        """The tool as changed, for all its agents. A field that is missing stays."""
        check_text("a tool's name or id", name_or_id)
        now, cipher = self._app.ports.clock.now(), self._app.ports.cipher

        def update(tx: Tx) -> ToolState:
            before = _resolve_tool(tx, name_or_id)
            fields = changes(before) if callable(changes) else changes
            check_sandbox_limits(self._app, memory_mb=fields.get("memory_mb"), timeout_s=fields.get("timeout_s"))
            return _load_states(tx, [update_tool(tx, before.id, fields, cipher=cipher, at=now)])[0]

        return await self._app.ports.store.write(update)

    async def delete(self, name_or_id: str) -> None:
        """Take the tool from all agents and remove it. Raises: NotFound, ToolBuiltIn."""
        check_text("a tool's name or id", name_or_id)
        await delete(self._app.ports, lambda tx: delete_tool(tx, _resolve_tool(tx, name_or_id).id))

    def read_source(self, source: str, source_type: str) -> Tool:
        """The tool that a source makes, which is not stored. Raises: SourceInvalid, SchemaMismatch, InvalidInput."""
        tool, _ = build_tool(NewTool(source=source, source_type=source_type, documented=True), UNSAVED)
        return tool

    async def run(
        self,
        name_or_id: str,
        arguments: Mapping[str, Any],
        *,
        author: Author | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> ToolOutcome:
        """The outcome of a tool with these arguments: with the checks, limits and sandbox of an agent's call."""
        state = await self.get(name_or_id)
        return await run_tool(
            self._app, state.tool, state.code, arguments, author=author or outside(), progress=progress
        )

    async def run_source(
        self,
        new: NewTool,
        arguments: Mapping[str, Any],
        *,
        author: Author | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> ToolOutcome:
        """The outcome of a source, which is not stored. Raises: as `create` and `run`."""
        check_sandbox_limits(self._app, memory_mb=new.memory_mb, timeout_s=new.timeout_s)
        tool, code = build_tool(new, UNSAVED)
        return await run_tool(self._app, tool, code, arguments, author=author or outside(), progress=progress)

    # --- those of an agent

    async def list_of_agent(self, agent_id: AgentId) -> Sequence[ToolState]:
        """The agent's tools, sorted by name. Raises: NotFound."""

        def load(tx: Tx) -> Sequence[ToolState]:
            tx.agents.model(agent_id)
            return _load_states(tx, tx.tools.list_by_agent(agent_id))

        return await self._app.ports.store.read(load)

    async def load(self, tools: Sequence[str | Callable[..., Any]]) -> tuple[str, ...]:
        """Make the functions among these usable as tools, and return the names of all.

        Raises: InvalidInput: neither a name nor a function that can be a tool; ToolBuiltIn, AlreadyExists: another kind
            of tool has the name of a function.
        """
        ports, loaded = self._app.ports, Functions()
        for one in tools:
            if not isinstance(one, str) and not callable(one):
                raise InvalidInput(f"a tool is {one!r:.80}: give the name of a tool, or a Python function")
        names = tuple(one if isinstance(one, str) else loaded.add(one).name for one in tools)
        if specs := loaded.specs():
            await ports.store.write(put_tools, specs, ids=ports.ids, at=ports.clock.now())
            for function in tools:
                if not isinstance(function, str):
                    self._app.functions.add(function)
        return names

    async def attach(self, agent_id: AgentId, tool: str | Callable[..., Any]) -> Tool:
        """Give the agent a tool: the one of a name or id, or a function, which runs in this process. Attaching twice is
        no error. Raises: InvalidInput, AlreadyExists; NotFound, naming those there are; TooMany."""
        (name_or_id,) = await self.load([tool])

        def attach(tx: Tx) -> Tool:
            tx.agents.model(agent_id)
            tool = _resolve_tool(tx, name_or_id)
            tx.tools.attach(agent_id, tool.spec.name)
            return tool

        return await self._app.ports.store.write(attach)

    async def detach(self, agent_id: AgentId, name_or_id: str) -> None:
        """Take a tool away from the agent. Raises: NotFound: it has no such tool."""
        check_text("a tool's name or id", name_or_id)

        def detach(tx: Tx) -> None:
            tx.agents.model(agent_id)
            tx.tools.detach(agent_id, _resolve_tool(tx, name_or_id).spec.name)

        await self._app.ports.store.write(detach)

    async def run_of_agent(
        self, agent_id: AgentId, name_or_id: str, arguments: Mapping[str, Any], *, author: Author | None = None
    ) -> ToolOutcome:
        """The outcome of a tool for this agent, with its secrets and blocks, whose changes are stored."""
        check_text("a tool's name or id", name_or_id)

        def find(tx: Tx) -> ToolState:
            tx.agents.model(agent_id)
            states = _load_states(tx, tx.tools.list_by_agent(agent_id))
            for state in states:
                if name_or_id in (state.tool.id, state.tool.spec.name, state.tool.own_name):
                    return state
            names = ", ".join(state.tool.spec.name for state in states)
            raise NotFound("tool of this agent", name_or_id, hint=f"it has {names or 'none'}")

        state = await self._app.ports.store.read(find)
        return await run_tool(
            self._app, state.tool, state.code, arguments, agent_id=agent_id, author=author or outside()
        )

    async def _save(self, new: NewTool, unit: Callable[..., Tool]) -> ToolState:
        """Store a new tool by `unit`. Raises: as `create`."""
        ports = self._app.ports
        check_sandbox_limits(self._app, memory_mb=new.memory_mb, timeout_s=new.timeout_s)
        tool_id, now = ToolId(ports.ids.new("tool")), ports.clock.now()
        return await ports.store.write(
            lambda tx: _load_states(tx, [unit(tx, new, tool_id, cipher=ports.cipher, at=now)])[0]
        )


def _load_states(tx: Tx, tools: Sequence[Tool]) -> list[ToolState]:
    """The tools with their code, and with their names at their servers."""
    codes = tx.tools.codes([tool.id for tool in tools if tool.spec.kind == "custom"])
    return [ToolState(tool, codes.get(tool.id)) for tool in tx.tools.with_own_names(tools)]


def _resolve_tool(tx: Tx, name_or_id: str) -> Tool:
    """The tool of this name, here or at its server, or id. Raises: NotFound, naming what there is."""
    if is_id("tool", name_or_id):
        return tx.tools.get(ToolId(name_or_id))
    tool = tx.tools.find(name_or_id)
    if tool is None:
        known = ", ".join(known.spec.name for known in tx.tools.list(limit=NAMED_TOOLS))
        raise NotFound("tool", name_or_id, hint=f"there are {known}")
    return tool


TIMEOUT_S = 30.0


def check_sandbox_limits(app: App, *, memory_mb: object, timeout_s: object) -> None:
    """Nothing, if a tool may have so much memory and time here. A value that is no number is refused elsewhere.

    Raises: InvalidInput: it is more than any call gets.
    """
    settings = app.settings
    if isinstance(memory_mb, int) and memory_mb > settings.sandbox_memory_mb:
        raise InvalidInput(
            f"memory_mb is {memory_mb:,}, and a call gets at most {settings.sandbox_memory_mb:,} MiB here:"
            " PERDURE_SANDBOX_MEMORY_MB sets how much"
        )
    if isinstance(timeout_s, int | float) and timeout_s > settings.sandbox_timeout_s:
        raise InvalidInput(
            f"timeout_s is {timeout_s:,}, and a call takes at most {settings.sandbox_timeout_s:,g} s here:"
            " PERDURE_SANDBOX_TIMEOUT_S sets how long"
        )


async def run_tool(
    app: App,
    tool: Tool,
    code: ToolCode | None,
    arguments: Mapping[str, Any],
    *,
    agent_id: AgentId | None = None,
    author: Author,
    progress: Callable[[str], None] | None = None,
) -> ToolOutcome:
    """The outcome of a tool with these arguments. Only its changes of the agent's memory are stored.

    Args:
        code: of a custom tool.
    Raises: InvalidInput: it is a tool of memory without an agent, or a client's, which only an agent's run can call;
        SandboxUnavailable; NotFound: the agent, a secret.
    """
    if tool.spec.kind == "custom":
        if code is None:
            raise InvalidInput(f"tool {tool.spec.name!r} has no source to run")
        return await _run_code(app, tool, code, arguments, agent_id, author, progress)
    if tool.spec.kind == "memory" and agent_id is not None:
        return await call_by_hand(tool, arguments, agent_id, app.ports, author=author)
    if tool.spec.kind == "memory":
        raise InvalidInput(f"tool {tool.spec.name!r} works on an agent's memory: run it as a tool of an agent")
    if tool.spec.kind == "client":
        raise InvalidInput(f"tool {tool.spec.name!r} works on an agent's own run: send the agent a message to have it")
    if (missing := app.ports.toolbox.missing(tool)) is not None:
        return ToolOutcome(text=missing, status="error")
    context = CallContext(
        agent_id=agent_id or AgentId(""), conversation_id=ConversationId(""), run_id=RunId(""), call_id="tried"
    )
    try:
        fitted = fit_arguments(tool.spec.name, tool.spec.parameters, arguments)
        async with asyncio.timeout(None if tool.spec.kind == "agents" else tool.spec.timeout_s or TIMEOUT_S):
            return await app.ports.toolbox.call(tool, fitted, context)
    except TimeoutError:
        text = f"tool {tool.spec.name!r} took more than {tool.spec.timeout_s or TIMEOUT_S:g} s and was stopped"
        return ToolOutcome(text=text, status="error")
    except SandboxUnavailable:
        raise
    except PerdureError as error:
        return ToolOutcome(text=str(error), status="error", refused=isinstance(error, ToolError))


async def _run_code(
    app: App,
    tool: Tool,
    code: ToolCode,
    arguments: Mapping[str, Any],
    agent_id: AgentId | None,
    author: Author,
    progress: Callable[[str], None] | None,
) -> ToolOutcome:
    """Run a custom tool in the sandbox, and store its changes of blocks."""
    if agent_id is None and code.takes_agent and needs_agent(code.source, code.function):
        raise InvalidInput(f"tool {tool.spec.name!r}: this tool takes agent_state: use agent.tools.run")
    try:
        fitted = fit_arguments(tool.spec.name, tool.spec.parameters, arguments)
    except ToolError as error:
        return ToolOutcome(text=str(error), status="error", refused=True)
    inputs = await app.store.read(load_inputs, tool.id, agent_id, cipher=app.ports.cipher, code=code)
    outcome = await app.custom.run(
        tool.spec,
        code,
        fitted,
        inputs.environment,
        inputs.agent,
        inputs.blocks,
        secrets=inputs.secrets,
        progress=progress,
    )
    if not outcome.blocks or agent_id is None:
        return outcome
    now = app.ports.clock.now()
    try:
        await app.store.write(lambda tx: change_blocks(tx, agent_id, outcome.blocks, author=author, at=now))
    except PerdureError as error:
        text = f"{outcome.text}\n[NOTE: the tool ran, but what it changed of the memory was not stored: {error}]"
        return replace(outcome, text=text, status="error", blocks=())
    return outcome
