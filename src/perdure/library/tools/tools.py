"""Tools as people and programs work on them: all of the store, those of one agent, and its rules about them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

from perdure.app import Functions
from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, NotFound, SourceInvalid
from perdure.core.ids import ToolId, is_id
from perdure.core.specs import Tool, ToolCode, ToolFilter, ToolOutcome
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import ToolRule, rules_in
from perdure.domain.tools import units
from perdure.engine.conversations.reset import delete
from perdure.library.agents.agents import AsyncAgentRecord
from perdure.library.parts.checks import Page, check_limit, check_page, check_text, outside
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.library.tools.calls import check_sandbox_limits, run_tool
from perdure.storage.tx import Tx

NAMED_TOOLS = 20
UNSAVED = ToolId("tool-tried")
"""Stands for the id of a tool that is not stored."""

Changes = units.ToolChanges | Callable[[Tool], units.ToolChanges]
"""New values of some fields, or a function that makes them from the tool as it is."""


@dataclass(frozen=True, slots=True)
class ToolState:
    """A tool and what it runs; `code` is None for a tool that is made of no source."""

    tool: Tool
    code: ToolCode | None


class AsyncTools(AsyncPart):
    """All tools of the store. An agent has those that are attached to it."""

    async def create(self, source: str | Callable[..., Any], **options: Unpack[units.ToolOptions]) -> Tool:
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
        return (await self.add(_new_tool(source, options), fields=tuple(options))).tool

    async def add(self, new: units.NewTool, *, fields: Sequence[str] | None = None) -> ToolState:
        """A new tool of a source. The same name and source again is the tool that is there.

        Args:
            fields: which fields of `new` must be equal in a tool that is there; by default those without the usual
                value.
        Raises: SourceInvalid, SchemaMismatch, InvalidInput, ToolBuiltIn; AlreadyExists: another tool has the name, or
            the same one is there with other fields.
        """
        return await self._save(new, lambda tx, *args, **ports: units.create_tool(tx, *args, fields=fields, **ports))

    async def upsert(self, source: str | Callable[..., Any], **options: Unpack[units.ToolOptions]) -> Tool:
        """Create the tool of this name, or change it. Options and Raises: as `create`."""
        return (await self.put(_new_tool(source, options))).tool

    async def put(self, new: units.NewTool, *, fields: Sequence[str] | None = None) -> ToolState:
        """Add the tool of this name, or change it; return it. Raises: as `create`.

        Args:
            fields: the fields to replace of a tool that is there; by default all.
        """
        return await self._save(new, lambda tx, *args, **ports: units.upsert_tool(tx, *args, fields=fields, **ports))

    async def get(self, name_or_id: str) -> Tool:
        """The tool of this name or id. Raises: NotFound, naming what there is."""
        return (await self.state(name_or_id)).tool

    async def state(self, name_or_id: str) -> ToolState:
        """The tool of this name or id, with its code. Raises: NotFound, naming what there is."""
        check_text("a tool's name or id", name_or_id)
        return await self._ports.store.read(lambda tx: _load_states(tx, [_resolve_tool(tx, name_or_id)])[0])

    async def code(self, name_or_id: str) -> ToolCode | None:
        """The code of a custom tool; None: this tool has no source. Its environment has all names, but only the values
        that refer to secrets; the others are encrypted and never shown. Raises: NotFound."""
        code = (await self.state(name_or_id)).code
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
        found = await self.page(where, Page(limit, ascending=False, after=after))
        return [state.tool for state in found]

    async def page(self, where: ToolFilter, page: Page) -> Sequence[ToolState]:
        """A page of tools. Raises: InvalidInput; NotFound: the page begins at no tool; the filter's agent."""
        check_page(page, text=where.text)
        return await self._ports.store.read(lambda tx: _load_states(tx, tx.tools.page(where=where, **page.arguments)))

    async def count(self, where: ToolFilter) -> int:
        """How many tools the filter lets through."""
        return await self._ports.store.read(lambda tx: tx.tools.count(where))

    async def search(self, query: str, *, limit: int = 10) -> Sequence[units.ToolHit]:
        """The tools whose name, tags or description have the words, best first."""
        return [hit for hit, _ in await self.search_codes(query, ToolFilter(), limit=limit)]

    @reads
    def search_codes(
        self, tx: Tx, query: str, where: ToolFilter, *, limit: int
    ) -> Sequence[tuple[units.ToolHit, ToolCode | None]]:
        """(hit, code) of tools whose name, tags or description have the words, best first; without words the newest."""
        check_limit(limit)
        check_text("query", query)
        tx.limits.check("query_limit_chars", len(query))
        hits = units.search_tools(tx, query, where=where, limit=limit)
        states = _load_states(tx, [hit.tool for hit in hits])
        return [(replace(hit, tool=one.tool), one.code) for hit, one in zip(hits, states, strict=True)]

    async def update(self, name_or_id: str, **changes: Unpack[units.ToolChanges]) -> Tool:
        """Change fields of a tool and return it; its agents have the change from their next model call on.

        Args:
            changes: the options of `create`, `source` and `source_type`. A missing field stays. A new source also sets
                name, description and schema.
        Raises: NotFound, SourceInvalid, SchemaMismatch, InvalidInput, AlreadyExists; ToolBuiltIn: of a tool that is
            made of no source only tags, metadata, return_limit_chars and requires_approval can be changed.
        """
        return (await self.edit(name_or_id, changes)).tool

    @writes
    def edit(self, tx: Tx, name_or_id: str, changes: Changes) -> ToolState:
        """Change fields of a tool, for all its agents, and return it; a missing field stays. Raises: as `update`."""
        check_text("a tool's name or id", name_or_id)
        now, cipher = self._ports.clock.now(), self._ports.cipher
        before = _resolve_tool(tx, name_or_id)
        fields = changes(before) if callable(changes) else changes
        check_sandbox_limits(self._app, memory_mb=fields.get("memory_mb"), timeout_s=fields.get("timeout_s"))
        return _load_states(tx, [units.update_tool(tx, before.id, fields, cipher=cipher, at=now)])[0]

    async def delete(self, name_or_id: str) -> None:
        """Take the tool from all agents and remove it. Raises: NotFound, ToolBuiltIn."""
        check_text("a tool's name or id", name_or_id)
        await delete(self._ports, lambda tx: units.delete_tool(tx, _resolve_tool(tx, name_or_id).id))

    async def test(
        self,
        name_or_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        author: Author | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> ToolOutcome:
        """Run a tool with these arguments, with the checks, limits and sandbox of an agent's call; return its outcome.

        Args:
            progress: receives lines that say what the call waits for, such as the installation of requirements.
        Raises: NotFound, SandboxUnavailable; InvalidInput: a tool of memory, which needs an agent's run, or one that
            takes `agent_state`, which `agent.tools.run` runs.
        """
        state = await self.state(name_or_id)
        return await run_tool(
            self._app, state.tool, state.code, arguments or {}, author=author or outside(), progress=progress
        )

    async def test_source(
        self,
        source: str | Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Callable[[str], None] | None = None,
        **options: Unpack[units.ToolOptions],
    ) -> ToolOutcome:
        """Run a source with these arguments, without storing it. Options and Raises: as `create` and `test`."""
        return await self.test_new(_new_tool(source, options), arguments or {}, progress=progress)

    async def test_new(
        self, new: units.NewTool, arguments: Mapping[str, Any], *, progress: Callable[[str], None] | None = None
    ) -> ToolOutcome:
        """Run a source with these arguments, without storing it. Raises: as `create` and `test`."""
        check_sandbox_limits(self._app, memory_mb=new.memory_mb, timeout_s=new.timeout_s)
        tool, code = units.build_tool(new, UNSAVED)
        return await run_tool(self._app, tool, code, arguments, author=outside(), progress=progress)

    def read_source(self, source: str, source_type: str) -> Tool:
        """The tool that a source makes, which is not stored. Raises: SourceInvalid, SchemaMismatch, InvalidInput."""
        tool, _ = units.build_tool(units.NewTool(source=source, source_type=source_type, documented=True), UNSAVED)
        return tool

    async def load(self, tools: Sequence[str | Callable[..., Any]]) -> tuple[str, ...]:
        """Make the functions among these usable as tools, and return the names of all.

        Raises: InvalidInput: neither a name nor a function that can be a tool; ToolBuiltIn, AlreadyExists: another kind
            of tool has the name of a function.
        """
        ports, loaded = self._ports, Functions()
        if isinstance(tools, str):
            raise InvalidInput(f"tools is {tools!r:.80}: give a list, such as [{tools!r:.80}]")
        for one in tools:
            if not isinstance(one, str) and not callable(one):
                raise InvalidInput(f"a tool is {one!r:.80}: give the name of a tool, or a Python function")
        names = tuple(tool if isinstance(tool, str) else loaded.add(tool).name for tool in tools)
        if specs := loaded.specs():
            await ports.store.write(units.put_tools, specs, ids=ports.ids, at=ports.clock.now())
            for function in tools:
                if not isinstance(function, str):
                    self._app.functions.add(function)
        return names

    @writes
    def _save(self, tx: Tx, new: units.NewTool, unit: Callable[..., Tool]) -> ToolState:
        """Store a tool by `unit`, with an id, the cipher and the time, and return it. Raises: as `create`."""
        ports = self._ports
        check_sandbox_limits(self._app, memory_mb=new.memory_mb, timeout_s=new.timeout_s)
        tool_id, now = ToolId(ports.ids.new("tool")), ports.clock.now()
        return _load_states(tx, [unit(tx, new, tool_id, cipher=ports.cipher, at=now)])[0]


class AsyncAgentTools(AsyncPart):
    """The tools of one agent. Every method raises NotFound when the agent is gone."""

    async def list(self) -> Sequence[Tool]:
        """The agent's tools, sorted by name."""
        return [state.tool for state in await self.states()]

    @reads
    def states(self, tx: Tx) -> Sequence[ToolState]:
        """The agent's tools with their code, sorted by name."""
        tx.agents.model(self._id)
        return _load_states(tx, tx.tools.list_by_agent(self._id))

    async def attach(self, tool: str | Callable[..., Any]) -> Tool:
        """Attach a tool by name or id, or a Python function, which runs in this process. Twice is no error.

        Raises: NotFound, naming those there are; InvalidInput: the function can't be a tool; AlreadyExists: another
            kind of tool has its name.
        """
        (name_or_id,) = await AsyncTools(self._app).load([tool])

        def attach(tx: Tx) -> Tool:
            """Attach the tool and return it. Raises: NotFound."""
            tx.agents.model(self._id)
            tool = _resolve_tool(tx, name_or_id)
            tx.tools.attach(self._id, tool.spec.name)
            return tool

        return await self._ports.store.write(attach)

    @writes
    def detach(self, tx: Tx, name_or_id: str) -> None:
        """Take a tool away from the agent. Raises: NotFound: it has no such tool."""
        check_text("a tool's name or id", name_or_id)
        tx.agents.model(self._id)
        tx.tools.detach(self._id, _resolve_tool(tx, name_or_id).spec.name)

    async def run(
        self, name_or_id: str, arguments: Mapping[str, Any] | None = None, *, author: Author | None = None
    ) -> ToolOutcome:
        """Run a tool for this agent, with its secrets, and with its blocks if the tool takes them.

        If the tool changes blocks, the changes are stored with you as their author.

        Raises: NotFound: the agent has no such tool; SandboxUnavailable, InvalidInput.
        """
        check_text("a tool's name or id", name_or_id)

        def find(tx: Tx) -> ToolState:
            """Return the agent's tool with this name or id. Raises: NotFound."""
            tx.agents.model(self._id)
            states = _load_states(tx, tx.tools.list_by_agent(self._id))
            for state in states:
                if name_or_id in (state.tool.id, state.tool.spec.name, state.tool.own_name):
                    return state
            names = ", ".join(state.tool.spec.name for state in states)
            raise NotFound("tool of this agent", name_or_id, hint=f"it has {names or 'none'}")

        state = await self._ports.store.read(find)
        return await run_tool(
            self._app, state.tool, state.code, arguments or {}, agent_id=self._id, author=author or outside()
        )


class AsyncAgentRules(AsyncPart):
    """The rules of one agent. They hold from its next answer on."""

    async def list(self) -> Sequence[ToolRule]:
        """The rules, in the order in which they were set. Raises: NotFound."""
        return await self._ports.store.read(lambda tx: rules_in(tx.agents.get(self._id).settings).rules)

    @reads
    def missing(self, tx: Tx) -> Sequence[str]:
        """The tools that rules name but the agent lacks; until then the rules have no effect. Raises: NotFound."""
        rules = rules_in(tx.agents.get(self._id).settings)
        present = {tool.spec.name for tool in tx.tools.list_by_agent(self._id)} | {*CONTEXT_TOOL_SPECS}
        return [name for name in rules.names if name not in present]

    async def set(
        self, rules: Iterable[ToolRule | Mapping[str, Any]], *, author: Author | None = None
    ) -> Sequence[ToolRule]:
        """Put these rules in place of all that the agent has, and return them; an empty list takes all away.

        Raises: ToolRulesInvalid: one can't be read, two contradict each other, its arguments don't fit the tool, and
            nothing was changed; NotFound.
        """
        stored = rules_to_settings(rules)
        agent = await AsyncAgentRecord(self._app, self._id).edit(
            lambda before: {"settings": {**before.settings, "tool_rules": stored}}, author=author or outside()
        )
        return rules_in(agent.settings).rules


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


def _new_tool(source: str | Callable[..., Any], options: Mapping[str, Any]) -> units.NewTool:
    """A new tool of a source, Python text or a function, with the options of `create`. Raises: InvalidInput: there is
    no such option, or no source to read."""
    if unknown := [name for name in options if name not in units.ToolOptions.__annotations__]:
        raise InvalidInput(
            f"a tool has no {', '.join(map(repr, unknown))}: there are {', '.join(units.ToolOptions.__annotations__)}"
        )
    return units.NewTool(source=source_of(source) if callable(source) else source, **options)


def _load_states(tx: Tx, tools: Sequence[Tool]) -> list[ToolState]:
    """These tools in their order, with their code, and with their names at their MCP servers."""
    codes = tx.tools.codes([tool.id for tool in tools if tool.spec.kind == "custom"])
    return [ToolState(tool, codes.get(tool.id)) for tool in tx.tools.with_own_names(tools)]


def _resolve_tool(tx: Tx, name_or_id: str) -> Tool:
    """The tool of this id, or of this name, here or at its MCP server. Raises: NotFound, naming what there is."""
    if is_id("tool", name_or_id):
        return tx.tools.get(ToolId(name_or_id))
    tool = tx.tools.find(name_or_id)
    if tool is None:
        from difflib import get_close_matches

        names = [known.name for known in tx.tools.list()]
        known = get_close_matches(name_or_id[:80], names) or names[:NAMED_TOOLS]
        raise NotFound("tool", name_or_id, hint=f"there are {', '.join(known)}")
    return tool
