"""Perdure: stateful agents that remember.

    from perdure import Perdure

    with Perdure("agents.db") as perdure:
        agent = perdure.create_agent("helper")
        print(agent.send("My name is Ada.").text)

The names below are the public ones. Each is loaded at its first use, so that `import perdure` itself takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.core.agents import Agent as AgentInfo
    from perdure.core.blocks import Block, BlockVersion
    from perdure.core.errors import (
        BlockLimitExceeded,
        BlockNotFound,
        Conflict,
        ConversationBusy,
        InvalidInput,
        ModelError,
        NotFound,
        PerdureError,
        RunFailed,
        StoreError,
        ToolError,
        VersionConflict,
    )
    from perdure.core.events import Delta, MemoryEdited, MessageAdded, RunEnded, StoredEvent
    from perdure.core.messages import Message
    from perdure.core.ports import Model, ModelDelta, ModelReply, ModelRequest
    from perdure.library import Agent, AsyncPerdure, Perdure, Reply, tool

__all__ = [
    "Agent",
    "AgentInfo",
    "AsyncPerdure",
    "Block",
    "BlockLimitExceeded",
    "BlockNotFound",
    "BlockVersion",
    "Conflict",
    "ConversationBusy",
    "Delta",
    "InvalidInput",
    "MemoryEdited",
    "Message",
    "MessageAdded",
    "Model",
    "ModelDelta",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "NotFound",
    "Perdure",
    "PerdureError",
    "Reply",
    "RunEnded",
    "RunFailed",
    "StoreError",
    "StoredEvent",
    "ToolError",
    "VersionConflict",
    "tool",
]

_HOMES = {
    "core.agents": ("AgentInfo",),
    "core.blocks": ("Block", "BlockVersion"),
    "core.events": ("Delta", "MemoryEdited", "MessageAdded", "RunEnded", "StoredEvent"),
    "core.messages": ("Message",),
    "core.ports": ("Model", "ModelDelta", "ModelReply", "ModelRequest"),
    "library": ("Agent", "AsyncPerdure", "Perdure", "Reply", "tool"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    home = importlib.import_module(f"perdure.{_HOME_OF.get(name, 'core.errors')}")
    value = getattr(home, "Agent" if name == "AgentInfo" else name)
    globals()[name] = value  # the next time it is an ordinary attribute
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
