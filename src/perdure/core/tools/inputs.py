"""What a custom tool is run with: its source, and the environment, agent and blocks of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perdure.core.agents import Agent
from perdure.core.blocks import Block
from perdure.core.tools.spec import ToolCode


@dataclass(frozen=True, slots=True)
class ToolInputs:
    """The inputs of a call, beside its arguments.

    Args:
        code: None: the tool has no source.
        environment: variable -> value.
        secrets: which variables are masked in the result: variable -> the name to show.
        blocks: the agent's blocks if the tool takes the agent, else empty.
    """

    code: ToolCode | None
    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    agent: Agent
    blocks: Sequence[Block]
