"""What a person agrees to, besides a call's arguments: the tool as it was when they were asked.

A tool may be changed while a call of it waits. The call keeps a digest of what would have been run, and something else
is not run in its place: the model reads why, and may ask again.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from perdure.core.messages import ToolCall
from perdure.core.tools.spec import Tool, ToolCode, ToolOutcome
from perdure.storage.tx import Tx


def tool_digest(tx: Tx, tool: Tool) -> str:
    """SHA-256 of what a call of this tool runs: its kind and parameters, and with them the code of a custom tool, or
    the definition of an MCP tool that was approved. Of a function it is not known what its body does."""
    made: dict[str, Any] = {"kind": tool.spec.kind, "parameters": tool.spec.parameters}
    if tool.spec.kind == "custom" and (code := tx.tools.code(tool.id)) is not None:
        made["code"] = {name: getattr(code, name) for name in ToolCode.__slots__}
    elif tool.spec.kind == "mcp" and (known := tx.mcp.find_tool(tool.id)) is not None:
        made["server"], made["tool"] = known.server_id, known.name
        made["definition"] = None if known.pinned is None else known.pinned.digest
    text = json.dumps(made, ensure_ascii=False, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def changed_since(tx: Tx, call: ToolCall, tool: Tool | None) -> ToolOutcome | None:
    """The result of an approved call whose tool is now another one than was asked about; None: it is as it was, or is
    not there any more, which is told where it is looked for."""
    if call.tool_digest is None or tool is None or tool_digest(tx, tool) == call.tool_digest:
        return None
    return ToolOutcome(
        text=f"not run: {call.name} was changed after approval of this call was asked for; call it again if you still"
        " need it, and approval will be asked for anew",
        status="error",
        refused=True,
    )
