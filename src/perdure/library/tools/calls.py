"""One run of a tool by hand, to try it out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from perdure.app import App
from perdure.core.blocks import Author
from perdure.core.errors import InvalidInput, PerdureError, SandboxUnavailable, ToolError
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.ports import CallContext
from perdure.core.specs import Tool, ToolCode, ToolOutcome
from perdure.core.tools.arguments import fit_arguments
from perdure.core.tools.source import needs_agent
from perdure.domain.blocks.units import change_blocks
from perdure.domain.environment import load_inputs
from perdure.engine.run.tool_calls import call_by_hand

TIMEOUT_S = 30.0


def check_sandbox_limits(app: App, *, memory_mb: object, timeout_s: object) -> None:
    """Check that a tool may have so much memory and time here; a value that is no number is checked elsewhere. Raises:
    InvalidInput: it is more than any call gets."""
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
    """Run a tool with these arguments, and return its outcome. Only its changes of the agent's memory are stored.

    Args:
        code: the source of a custom tool.
        author: who makes the changes of memory.
        progress: takes a line for each step before a custom tool runs, such as an installation.
    Raises: InvalidInput: it is a tool of memory without an agent, or a client's, which only an agent's run can call;
        SandboxUnavailable; NotFound: the agent, a secret.
    """
    if tool.spec.kind == "custom":
        if code is None:
            raise InvalidInput(f"tool {tool.spec.name!r} has no source to run")
        if agent_id is None and code.takes_agent and needs_agent(code.source, code.function):
            raise InvalidInput(f"tool {tool.spec.name!r}: this tool takes agent_state: use agent.tools.run")
        try:
            fitted = fit_arguments(tool.spec.name, tool.spec.parameters, arguments)
        except ToolError as error:
            return ToolOutcome(text=str(error), status="error", refused=True)
        inputs = await app.store.read(load_inputs, tool.id, agent_id, cipher=app.ports.cipher, code=code)
        outcome = await app.custom.run(tool.spec, code, fitted, inputs, progress=progress)
        return await _with_blocks(app, outcome, agent_id, author)
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
        limit_s = None if tool.spec.kind in ("agents", "helpers") else tool.spec.timeout_s or TIMEOUT_S
        async with asyncio.timeout(limit_s):
            return await app.ports.toolbox.call(tool, fitted, context)
    except TimeoutError:
        text = f"tool {tool.spec.name!r} took more than {tool.spec.timeout_s or TIMEOUT_S:g} s and was stopped"
        return ToolOutcome(text=text, status="error")
    except SandboxUnavailable:
        raise
    except PerdureError as error:
        return ToolOutcome(text=str(error), status="error", refused=isinstance(error, ToolError))


async def _with_blocks(app: App, outcome: ToolOutcome, agent_id: AgentId | None, author: Author) -> ToolOutcome:
    """Store the changes of blocks in the outcome of a custom tool, and return it; as an error, if they can't be."""
    if not outcome.blocks or agent_id is None:
        return outcome
    now = app.ports.clock.now()
    try:
        await app.store.write(lambda tx: change_blocks(tx, agent_id, outcome.blocks, author=author, at=now))
    except PerdureError as error:
        text = f"{outcome.text}\n[NOTE: the tool ran, but what it changed of the memory was not stored: {error}]"
        return replace(outcome, text=text, status="error", blocks=())
    return outcome
