"""Tools as the wire shows them."""

from __future__ import annotations

from typing import Any

from perdure.core.tools import Tool
from perdure.server.wire.base import ACTOR_ID

__all__ = ["tool_shape"]


def tool_shape(tool: Tool) -> dict[str, Any]:
    """The tool with all fields of the wire. `source_code` is null: what runs is a function of the program or our
    own."""
    spec = tool.spec
    own = spec.tool_type != "custom"
    return {
        "id": tool.id,
        "tool_type": spec.tool_type,
        "description": spec.description,
        "source_type": "python",
        "name": spec.name,
        # Letta's own tools are tagged with their type, which clients use to tell them from a user's.
        "tags": list(tool.tags) or ([spec.tool_type] if own else []),
        "source_code": None,
        "json_schema": {
            "name": spec.name,
            "description": spec.description,
            "parameters": dict(spec.parameters),
        },
        "args_json_schema": None if own else {},
        "return_char_limit": spec.return_limit_chars,
        "pip_requirements": None,
        "npm_requirements": None,
        "default_requires_approval": None,
        "enable_parallel_execution": spec.parallel,
        "created_by_id": ACTOR_ID,
        "last_updated_by_id": ACTOR_ID,
        "metadata_": dict(tool.metadata),
        "project_id": None,
    }
