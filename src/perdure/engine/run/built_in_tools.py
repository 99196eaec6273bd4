"""The table of the engine's own tools: what a call does, inside the transaction of its result or before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from perdure.core.tools.spec import ToolOutcome
from perdure.domain.tools.memory_tools import MEMORY_TOOLS
from perdure.engine.search.tools import SEARCH_TOOLS


@dataclass(frozen=True, slots=True)
class BuiltInTool:
    """One of the two is there, both with the arguments of the call as keywords.

    Args:
        edit: `edit(tx, call, ...)` runs inside the transaction that stores the result: both hold, or neither.
        search: `search(call, ...)` changes nothing and runs before it: the one writer has no time for a search.
    """

    edit: Callable[..., ToolOutcome] | None = None
    search: Callable[..., Awaitable[ToolOutcome]] | None = None


BUILT_IN_TOOLS: Mapping[str, BuiltInTool] = {
    **{name: BuiltInTool(edit=edit) for name, edit in MEMORY_TOOLS.items()},
    **{name: BuiltInTool(search=search) for name, search in SEARCH_TOOLS.items()},
}
"""Name -> tool."""
