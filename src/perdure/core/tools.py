"""Tools as the model and the engine see them. What runs one stands in `memory` (built-in) or `toolbox` (foreign)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.core.ids import ToolId
from perdure.core.messages import ToolStatus

__all__ = ["REPEATING_TOOLS", "Tool", "ToolKind", "ToolOutcome", "ToolSpec"]

ToolKind = Literal["memory", "function"]
"""`memory` tools edit or search the agent's own store, inside the transaction that stores their result. A `function` is
foreign code: it is started, may fail or be interrupted, and its effects are its own."""


REPEATING_TOOLS = frozenset(
    {
        "archival_memory_insert",
        "archival_memory_search",
        "context_expand",
        "context_grep",
        "conversation_search",
        "core_memory_append",
        "core_memory_replace",
        "grep_files",
        "memory",
        "memory_apply_patch",
        "memory_finish_edits",
        "memory_insert",
        "open_files",
        "semantic_search_files",
        "memory_replace",
        "memory_rethink",
    }
)
"""Tools whose results only repeat what is stored elsewhere: the built-in ones, which show a block or what a search
found. Searching history leaves them out, or a search would find the searches and edits before it instead of what was
said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What a model is told of a tool, and what the engine must know to run it.

    Args:
        parameters: a JSON schema of type object.
        idempotent: running it twice does no harm, so an interrupted call is run again.
        parallel: calls of one answer may run at the same time.
        return_limit_chars: a longer result is cut, and says so.
        tool_type: the wire's name of its kind.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    kind: ToolKind = "function"
    tool_type: str = "custom"
    idempotent: bool = False
    parallel: bool = False
    return_limit_chars: int = 50_000
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as an object of an organisation, which agents have attached."""

    id: ToolId
    spec: ToolSpec
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What came of a call: the text the model sees, and what it printed. `refused`: as in `messages.ToolResult`."""

    text: str
    status: ToolStatus = "success"
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    refused: bool = False
