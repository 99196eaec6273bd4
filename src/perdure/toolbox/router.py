"""One toolbox made of several: the kind of a tool decides which of them runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ports import CallContext, Toolbox
from perdure.core.tools.spec import Tool, ToolOutcome


class Toolboxes:
    """`Toolbox` that hands a call to the toolbox of the tool's kind."""

    def __init__(self, **by_kind: Toolbox) -> None:
        self._by_kind = by_kind

    def missing(self, tool: Tool) -> str | None:
        toolbox = self._by_kind.get(tool.spec.kind)
        if toolbox is None:
            return f"tool {tool.spec.name!r} can't be run here: this process runs no tools of the kind {tool.spec.kind}"
        return toolbox.missing(tool)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        toolbox = self._by_kind.get(tool.spec.kind)
        if toolbox is None:
            raise NotFound("toolbox", tool.spec.kind)
        return await toolbox.call(tool, arguments, context)
