"""Hooks: other people's code that looks on at fixed points, and may block what comes or add to the next request.

Values and the port of one hook; what calls them all is `engine.hooks.bus`, what runs commands and functions is
`toolbox.hooks`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, get_args

from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.text.json_encoder import compact_json

__all__ = [
    "GO_ON",
    "HOOK_POINTS",
    "AfterCompaction",
    "AfterModel",
    "AfterTool",
    "BeforeCompaction",
    "BeforeModel",
    "BeforeTool",
    "ConversationEnd",
    "ConversationStart",
    "Hook",
    "HookInfo",
    "HookPayload",
    "HookPoint",
    "IfItFails",
    "Reset",
    "RunEnd",
    "RunStart",
    "Said",
    "Verdict",
    "payload_to_json",
]

HookPoint = Literal[
    "conversation_start",
    "run_start",
    "before_model",
    "after_model",
    "before_tool",
    "after_tool",
    "before_compaction",
    "after_compaction",
    "run_end",
    "conversation_end",
    "reset",
]
"""Where a hook is called. What it may do there stands with each payload."""

HOOK_POINTS: tuple[HookPoint, ...] = get_args(HookPoint)

IfItFails = Literal["go_on", "block"]
"""What a hook that raises, hangs or can't be started counts as."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a hook says.

    Args:
        block: why what was about to happen must not; None: it may.
        context: a text that the agent is told before its next model call.
    """

    block: str | None = None
    context: str | None = None


GO_ON = Verdict()


@dataclass(frozen=True, slots=True)
class Said:
    """A message as hooks see it."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _About:
    """Whom it is about. `run_id` is None where there is no run."""

    agent_id: AgentId
    conversation_id: ConversationId
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationStart(_About):
    """The first message of a conversation has arrived. Blocked: it is refused, and nothing of it is kept."""

    point: Literal["conversation_start"] = "conversation_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(_About):
    """A request has arrived. Blocked: it is refused, and nothing of it is kept."""

    messages: tuple[Said, ...]
    background: bool
    point: Literal["run_start"] = "run_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeModel(_About):
    """The model is about to be asked; `new` is what came since it was asked last. Blocked: the run ends with it."""

    model: str
    step: int
    new: tuple[Said, ...]
    point: Literal["before_model"] = "before_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterModel(_About):
    """The model has answered. Blocked: the answer is not kept, and the run ends with the reason."""

    model: str
    step: int
    text: str
    tool_calls: tuple[Mapping[str, Any], ...]
    stop_reason: str
    input_tokens: int
    output_tokens: int
    point: Literal["after_model"] = "after_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTool(_About):
    """A tool is about to be run, with arguments that fit it. Blocked: it is not, and the reason is its result."""

    call_id: str
    tool: str
    kind: str
    arguments: Mapping[str, Any]
    point: Literal["before_tool"] = "before_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterTool(_About):
    """A tool has been run. Blocked: its result is withheld, the reason stands in its place. What a memory tool did
    stands already: there only the context counts."""

    call_id: str
    tool: str
    kind: str
    arguments: Mapping[str, Any]
    status: str
    result: str
    point: Literal["after_tool"] = "after_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeCompaction(_About):
    """Something is about to leave the window, because the request does not fit it otherwise. Blocked: the run ends
    without a model call."""

    by: str
    budget_tokens: int
    point: Literal["before_compaction"] = "before_compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterCompaction(_About):
    """Something has left the window. Nothing to block."""

    by: str
    point: Literal["after_compaction"] = "after_compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd(_About):
    """A run is about to end, or has ended where something else ended it. Nothing to block."""

    stop_reason: str
    text: str
    error: str | None
    point: Literal["run_end"] = "run_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEnd(_About):
    """A conversation is over: it, or its agent, was deleted. Nothing to block, and nobody is left to tell."""

    point: Literal["conversation_end"] = "conversation_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(_About):
    """The messages of a conversation were taken out of view. Nothing to block."""

    point: Literal["reset"] = "reset"


HookPayload = (
    ConversationStart
    | RunStart
    | BeforeModel
    | AfterModel
    | BeforeTool
    | AfterTool
    | BeforeCompaction
    | AfterCompaction
    | RunEnd
    | ConversationEnd
    | Reset
)
"""What a hook is told; `point` says which it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookInfo:
    """How a hook is called.

    Args:
        points: where.
        source: where it comes from, for people: a file, a package, the program.
        tools: patterns of tool names, such as `mcp_*`; at the points of tools it is called for these only. Empty: all.
        timeout_s: after so many seconds it has failed.
        if_it_fails: what then counts.
    """

    name: str
    points: frozenset[HookPoint]
    source: str = "program"
    tools: tuple[str, ...] = ()
    timeout_s: float = 10.0
    if_it_fails: IfItFails = "go_on"

    def wants(self, payload: HookPayload) -> bool:
        """Whether the hook is called with this."""
        if payload.point not in self.points:
            return False
        if not self.tools or not isinstance(payload, BeforeTool | AfterTool):
            return True
        return any(fnmatch.fnmatchcase(payload.tool, pattern) for pattern in self.tools)


class Hook(Protocol):
    """One hook."""

    @property
    def info(self) -> HookInfo: ...

    async def __call__(self, payload: HookPayload) -> Verdict:
        """What it says. Raises: anything: it has failed."""
        ...


def payload_to_json(payload: HookPayload) -> str:
    """One line of JSON: `point` first, then the fields by name."""
    shape = {spec.name: getattr(payload, spec.name) for spec in fields(payload) if spec.name != "point"}
    for name in ("messages", "new"):
        if name in shape:
            shape[name] = [{"role": said.role, "text": said.text} for said in shape[name]]
    return compact_json({"point": payload.point} | shape)
