"""Custom tools: Python source of users, run in the sandbox with secrets and, where it takes them, blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.core.blocks import Block
from perdure.core.errors import NotFound, SecretKeyMissing, SecretUnreadable
from perdure.core.ids import AgentId, ConversationId, ToolId
from perdure.core.ports import CallContext
from perdure.core.secrets import SecretMask
from perdure.core.specs import BlockChange, Tool, ToolCode, ToolInputs, ToolOutcome, ToolSpec
from perdure.core.text.reprs import attributes
from perdure.core.tools.sandbox import Sandbox, SandboxJob, SandboxLimits, SandboxResult

TIMEOUT_S = 30.0
"""The time limit of a tool that sets none."""

FRAMES_MAX = 10


LoadInputs = Callable[[ToolId, AgentId, ConversationId], Awaitable[ToolInputs]]
"""Loads code, environment, secrets, agent and blocks for a call of a stored tool by an agent."""


class CustomTools:
    """`Toolbox` of custom tools. `sandbox` runs them; None: calls are refused."""

    def __init__(self, load_inputs: LoadInputs, sandbox: Sandbox | None) -> None:
        self._load_inputs, self._sandbox = load_inputs, sandbox

    def missing(self, tool: Tool) -> str | None:
        """Why this tool can't be run here; None: it can."""
        if self._sandbox is None:
            return (
                f"tool {tool.spec.name!r} was not run: there is no sandbox here, and custom tools run in nothing else"
            )
        return None

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        """Run a stored tool for an agent's call. Raises: SandboxUnavailable; NotFound: it has no source."""
        try:
            inputs = await self._load_inputs(tool.id, context.agent_id, context.conversation_id)
        except (NotFound, SecretKeyMissing, SecretUnreadable) as error:
            text = f"tool {tool.spec.name!r} was not run: {error}"
            return ToolOutcome(text=text, status="error")
        if inputs.code is None:
            raise NotFound("source of tool", tool.spec.name)
        return await self.run(tool.spec, inputs.code, arguments, inputs)

    async def run(
        self,
        spec: ToolSpec,
        code: ToolCode,
        arguments: Mapping[str, Any],
        inputs: ToolInputs,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> ToolOutcome:
        """Run a tool's source, stored or not, and return its outcome with the values of secrets masked.

        Args:
            code, inputs: the source, and what the tool gets beside its arguments.
            progress: takes a line for each step, such as the installation of requirements.
        Raises: SandboxUnavailable.
        """
        if code.source_type != "python":
            text = f"tool {spec.name!r} was not run: it is written in {code.source_type}, and only Python is run here"
            return ToolOutcome(text=text, status="error")
        if self._sandbox is None:
            return ToolOutcome(text="there is no sandbox here, so it was not run", status="error")
        agent = inputs.agent
        limits = SandboxLimits(wall_s=spec.timeout_s or TIMEOUT_S)
        if code.memory_mb is not None:
            limits = replace(limits, memory_mb=code.memory_mb)
        facts = None
        if code.takes_agent and agent is not None:
            facts = {
                **attributes(agent, "id", "name", "description"),
                "metadata": dict(agent.metadata),
                "tags": list(agent.tags),
                "blocks": {block.label: block.value for block in inputs.blocks},
            }
        job = SandboxJob(
            source=code.source,
            function=code.function,
            arguments={**dict.fromkeys(code.left_empty), **arguments},
            environment=inputs.environment,
            agent=facts,
            requirements=code.requirements,
            limits=limits,
            network=code.network,
            owner="" if agent is None else agent.id,
        )
        mask = SecretMask({inputs.environment[variable]: name for variable, name in inputs.secrets.items()})
        result = await self._sandbox.run(job, progress=progress)

        def build_outcome() -> ToolOutcome:
            """The outcome, with the name of a secret wherever its value was."""
            masked = replace(result, value=mask.value(result.value))
            outcome = _build_outcome(spec.name, masked, inputs.blocks)
            return replace(
                outcome,
                text=mask.text(outcome.text),
                stdout=tuple(map(mask.text, outcome.stdout)),
                stderr=tuple(map(mask.text, outcome.stderr)),
                blocks=tuple(replace(change, value=mask.text(change.value)) for change in outcome.blocks),
            )

        # Masking megabytes takes seconds, so it runs off the event loop.
        return await asyncio.to_thread(build_outcome) if inputs.secrets else build_outcome()


def _build_outcome(name: str, result: SandboxResult, blocks: Sequence[Block]) -> ToolOutcome:
    """The outcome of a run of the tool called `name`, with the changes of those blocks that it was given."""
    versions = {block.label: block.version for block in blocks}
    changes = tuple(
        BlockChange(label, value, versions[label]) for label, value in (result.agent or {}).items() if label in versions
    )
    stdout, stderr = ((output,) if output else () for output in (result.stdout, result.stderr))
    if result.status == "success":
        return ToolOutcome(text=str(result.value), stdout=stdout, stderr=stderr, blocks=changes)
    lines = [f"  line {frame.line}, in {frame.function}: {frame.text}" for frame in result.traceback[-FRAMES_MAX:]]
    text = "\n".join([result.error or f"the tool ended with {result.status}", *lines])
    return ToolOutcome.failure(name, text, stdout=stdout, stderr=stderr)
