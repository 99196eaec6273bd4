"""Hooks: code of users that is called at fixed points, and may block an action or add to the next request.

Values and the port of one hook. `engine.hooks.bus` calls them, `toolbox.hooks` runs commands and functions.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, get_args

from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.text.json_strings import compact_json

HookPoint = Literal[
    "conversation_start",
    "run_start",
    "next_prompt",
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
"""The points at which hooks are called; each payload says what a hook may do there."""

HOOK_POINTS: tuple[HookPoint, ...] = get_args(HookPoint)

BEFORE_REQUESTS: frozenset[HookPoint] = frozenset({"next_prompt", "before_model"})
"""The points at which hooks are called before a request is recorded."""

FailurePolicy = Literal["go_on", "block"]
"""The meaning of a hook that raises, hangs or can't be started."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A hook's answer. `block`: why to block the action, or None; `context`: a text for the agent's next model call."""

    block: str | None = None
    context: str | None = None


GO_ON = Verdict()


@dataclass(frozen=True, slots=True)
class HookMessage:
    """A message in a hook's payload."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Payload:
    """The agent, conversation and run of a payload. `run_id` is None without a run."""

    agent_id: AgentId
    conversation_id: ConversationId
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationStart(_Payload):
    """The first message of a conversation has arrived. Blocked: it is refused and not stored."""

    point: Literal["conversation_start"] = "conversation_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(_Payload):
    """A request has arrived. Blocked: it is refused and not stored."""

    messages: tuple[HookMessage, ...]
    background: bool
    point: Literal["run_start"] = "run_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextPrompt(_Payload):
    """The next request is about to be built, with the hook's context. `recent_steps`: a line per step of the turn."""

    step: int
    recent_steps: tuple[str, ...]
    point: Literal["next_prompt"] = "next_prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeModel(_Payload):
    """The model is about to be called; `new`: the messages since its last call. Blocked: the run ends."""

    model: str
    step: int
    new: tuple[HookMessage, ...]
    point: Literal["before_model"] = "before_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterModel(_Payload):
    """The model has answered. Blocked: the answer is not stored, and the run ends with the reason."""

    model: str
    step: int
    text: str
    tool_calls: tuple[Mapping[str, Any], ...]
    stop_reason: str
    input_tokens: int
    output_tokens: int
    point: Literal["after_model"] = "after_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTool(_Payload):
    """A tool is about to be run, with arguments that fit it. Blocked: it is not, and the reason is its result."""

    call_id: str
    tool: str
    kind: str
    arguments: Mapping[str, Any]
    point: Literal["before_tool"] = "before_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterTool(_Payload):
    """A tool has run. Blocked: the reason replaces its result.

    The edit of a memory tool is stored already: for these tools only the context counts.
    """

    call_id: str
    tool: str
    kind: str
    arguments: Mapping[str, Any]
    status: str
    result: str
    point: Literal["after_tool"] = "after_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeCompaction(_Payload):
    """Messages are about to leave the window, because the next request would take more than `budget_tokens`. Blocked:
    the run ends without a model call. `by` is a `RoomKind`."""

    by: str
    budget_tokens: int
    point: Literal["before_compaction"] = "before_compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterCompaction(_Payload):
    """Messages have left the window; `by` is a `RoomKind`. It can't be blocked."""

    by: str
    point: Literal["after_compaction"] = "after_compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd(_Payload):
    """A run is about to end, or has ended where another process ended it. It can't be blocked."""

    stop_reason: str
    text: str
    error: str | None
    point: Literal["run_end"] = "run_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEnd(_Payload):
    """A conversation is over: it, or its agent, was deleted. It can't be blocked, and a context is not used."""

    point: Literal["conversation_end"] = "conversation_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(_Payload):
    """The messages of a conversation were taken out of view by a reset. It can't be blocked."""

    point: Literal["reset"] = "reset"


HookPayload = (
    ConversationStart
    | RunStart
    | NextPrompt
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
        points: the points at which it is called.
        source: where it comes from, for people: a file, a package, the program.
        tools: patterns of tool names, such as `mcp_*`; at the points of tools it is called for these only. Empty: all.
        timeout_s: after so many seconds it has failed.
        if_it_fails: whether the action goes on or is blocked when the hook fails.
    """

    name: str
    points: frozenset[HookPoint]
    source: str = "program"
    tools: tuple[str, ...] = ()
    timeout_s: float = 10.0
    if_it_fails: FailurePolicy = "go_on"

    def wants(self, payload: HookPayload) -> bool:
        """Return whether the hook has to be called with this payload."""
        if payload.point not in self.points:
            return False
        if not self.tools or not isinstance(payload, BeforeTool | AfterTool):
            return True
        return any(fnmatch.fnmatchcase(payload.tool, pattern) for pattern in self.tools)


class Hook(Protocol):
    """One hook."""

    @property
    def info(self) -> HookInfo:
        """Its name, points and limits."""

    async def __call__(self, payload: HookPayload) -> Verdict:
        """Return the hook's verdict. Whatever it raises means that it has failed."""


def payload_to_json(payload: HookPayload) -> str:
    """Return one line of JSON: `point` first, then the fields by name."""
    shape = asdict(payload)
    return compact_json({"point": shape.pop("point")} | shape)
