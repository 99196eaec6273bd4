"""Companions that reflect: they read what failed, and propose changes of the agent's rules; they apply none."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.features.proposals.tools import TOOL
from perdure.library.agents.agents import CompanionKind

FINISH = "memory_finish_edits"
KIND: CompanionKind = "reflection"


def companion_tools(kind: CompanionKind) -> Sequence[str]:
    """The tools of a companion that reflects; none of other kinds."""
    return (TOOL, FINISH) if kind == KIND else ()


def pass_task(kind: CompanionKind, agent_name: str, labels: Sequence[str]) -> Sequence[str]:
    """What a companion that reflects is told to do; nothing for other kinds."""
    if kind != KIND:
        return ()
    return (
        f"You reflect on the work of the agent {agent_name!r}, which is not waiting for you. Below are the calls of"
        " tools that failed since your last pass, and what was said and done meanwhile as numbered lines.",
        f"You can't change its memory blocks: {', '.join(labels) or 'none'}. Where failures have a cause in common that"
        f" a line in one of them would prevent, propose that line with {TOOL}: reason is the cause, evidence quotes the"
        " calls and their errors. Propose no more than the failures show, and nothing for what happened once by chance."
        f" Then call {FINISH} and say what you found.",
    )
