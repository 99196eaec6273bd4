"""Custom tools: somebody's source, run in the sandbox with the agent's secrets and, if it wants them, its blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.agents import Agent
from perdure.core.blocks import Block
from perdure.core.errors import NotFound, SecretKeyMissing, SecretUnreadable
from perdure.core.ids import AgentId, ToolId
from perdure.core.ports import CallContext
from perdure.core.secret_mask import SecretMask
from perdure.core.secrets import Cipher
from perdure.core.tools.sandbox import Sandbox, SandboxJob, SandboxLimits, SandboxResult
from perdure.core.tools.spec import BlockChange, Tool, ToolCode, ToolOutcome, ToolSpec
from perdure.domain.secrets import resolve_environment, secret_names
from perdure.domain.tools.environment import open_environment
from perdure.storage.store import Store
from perdure.storage.tx import Tx

__all__ = ["TIMEOUT_S", "CustomTools", "job_of"]

TIMEOUT_S = 30.0
"""How long a tool may take that says nothing about it."""

FRAMES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class _Given:
    """What a call is run with, of one moment."""

    code: ToolCode | None
    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    agent: Agent
    blocks: Sequence[Block]


class CustomTools:
    """`Toolbox` of tools that are made of a source.

    Args:
        sandbox: where they are run; None: there is none, and they are refused.
    """

    def __init__(self, store: Store, cipher: Cipher, sandbox: Sandbox | None) -> None:
        self._store, self._cipher, self._sandbox = store, cipher, sandbox

    def missing(self, tool: Tool) -> str | None:
        if self._sandbox is None:
            return (
                f"tool {tool.spec.name!r} was not run: there is no sandbox here, and custom tools run in nothing else"
            )
        return None

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        try:
            given = await self._store.read(_given, tool.id, context.agent_id, self._cipher)
        except (NotFound, SecretKeyMissing, SecretUnreadable) as error:
            text = f"tool {tool.spec.name!r} was not run: {error}"
            return ToolOutcome(text=text, status="error")
        if given.code is None:
            raise NotFound("source of tool", tool.spec.name)
        return await self.run(
            tool.spec,
            given.code,
            arguments,
            given.environment,
            given.agent,
            given.blocks,
            secrets=given.secrets,
        )

    async def run(
        self,
        spec: ToolSpec,
        code: ToolCode,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        agent: Agent | None = None,
        blocks: Sequence[Block] = (),
        *,
        secrets: Mapping[str, str],
        progress: Callable[[str], None] | None = None,
    ) -> ToolOutcome:
        """What came of a source, stored or not, without the values of secrets.

        Args:
            secrets: which variables of the environment are masked: variable -> the name to show.
        Raises: SandboxUnavailable.
        """
        if code.source_type != "python":
            text = f"tool {spec.name!r} was not run: it is written in {code.source_type}, and only Python is run here"
            return ToolOutcome(text=text, status="error")
        if self._sandbox is None:
            return ToolOutcome(text="there is no sandbox here, so it was not run", status="error")
        job = job_of(spec, code, arguments, environment, agent, blocks)
        mask = SecretMask({environment[variable]: name for variable, name in secrets.items()})
        result = await self._sandbox.run(job, progress=progress)

        def shown() -> ToolOutcome:
            return _masked(_outcome(replace(result, value=mask.value(result.value)), blocks), mask)

        # Megabytes of escapes take seconds, in which others go on.
        return await asyncio.to_thread(shown) if secrets else shown()


def job_of(
    spec: ToolSpec,
    code: ToolCode,
    arguments: Mapping[str, Any],
    environment: Mapping[str, str],
    agent: Agent | None,
    blocks: Sequence[Block],
) -> SandboxJob:
    """The job that a call is."""
    limits = SandboxLimits(wall_s=spec.timeout_s or TIMEOUT_S)
    if code.memory_mb is not None:
        limits = replace(limits, memory_mb=code.memory_mb)
    facts = None
    if code.takes_agent and agent is not None:
        facts = {
            "id": agent.id,
            "name": agent.name,
            "description": agent.description,
            "metadata": dict(agent.metadata),
            "tags": list(agent.tags),
            "blocks": {block.label: block.value for block in blocks},
        }
    return SandboxJob(
        source=code.source,
        function=code.function,
        arguments={**dict.fromkeys(code.left_empty), **arguments},
        environment=environment,
        agent=facts,
        requirements=code.requirements,
        limits=limits,
        network=code.network,
        owner="" if agent is None else agent.id,
    )


def _given(tx: Tx, tool_id: ToolId, agent_id: AgentId, cipher: Cipher) -> _Given:
    code = tx.tools.code(tool_id)
    values = open_environment(tx, tool_id, code, cipher=cipher) if code else {}
    environment = resolve_environment(tx, agent_id, values, cipher=cipher)
    secrets = secret_names(tx, agent_id, code) if code else {}
    blocks = tx.blocks.of_agent(agent_id) if code is not None and code.takes_agent else ()
    return _Given(code, environment, secrets, tx.agents.get(agent_id), blocks)


def _outcome(result: SandboxResult, blocks: Sequence[Block]) -> ToolOutcome:
    versions = {block.label: block.version for block in blocks}
    changes = tuple(
        BlockChange(label, value, versions[label]) for label, value in (result.agent or {}).items() if label in versions
    )
    stdout, stderr = _lines(result.stdout), _lines(result.stderr)
    if result.status == "success":
        return ToolOutcome(text=_text(result.value), stdout=stdout, stderr=stderr, blocks=changes)
    lines = [f"  line {frame.line}, in {frame.function}: {frame.text}" for frame in result.traceback[-FRAMES_SHOWN:]]
    text = "\n".join([result.error or f"the tool ended with {result.status}", *lines])
    return ToolOutcome(text=text, status="error", stdout=stdout, stderr=stderr)


def _masked(outcome: ToolOutcome, mask: SecretMask) -> ToolOutcome:
    return replace(
        outcome,
        text=mask.text(outcome.text),
        stdout=tuple(map(mask.text, outcome.stdout)),
        stderr=tuple(map(mask.text, outcome.stderr)),
        blocks=tuple(replace(change, value=mask.text(change.value)) for change in outcome.blocks),
    )


def _lines(printed: str) -> tuple[str, ...]:
    return (printed,) if printed else ()


def _text(value: Any) -> str:
    """As the wire has results: a text as it is, anything else as Python writes it."""
    return str(value)
