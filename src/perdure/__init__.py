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
        AlreadyExists,
        BlockLimitExceeded,
        BlockNotFound,
        BlockReadOnly,
        Conflict,
        ConversationBusy,
        EmptyMessage,
        HookBlocked,
        IdempotencyMismatch,
        InvalidInput,
        MessageTooLarge,
        ModelError,
        ModelNotFound,
        NotFound,
        PerdureError,
        RunFailed,
        StoreBusy,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreTooNew,
        ToolError,
        TooMany,
        VersionConflict,
    )
    from perdure.core.events import Delta, MemoryEdited, MessageAdded, RunEnded, StoredEvent
    from perdure.core.files import File
    from perdure.core.hooks import Verdict
    from perdure.core.messages import Message, Question, Reasoning, Text, ToolCall
    from perdure.core.models import Model, ModelDelta, ModelReply, ModelRequest
    from perdure.core.passages import Passage
    from perdure.core.runs import Usage
    from perdure.library import (
        Agent,
        Archive,
        AsyncAgent,
        AsyncArchive,
        AsyncFolder,
        AsyncPerdure,
        Folder,
        ImportedMessage,
        ImportResult,
        NewBlock,
        NewPassage,
        Perdure,
        Reply,
        Settings,
        hook,
        tool,
    )

__all__ = [
    "Agent",
    "AgentInfo",
    "AlreadyExists",
    "Archive",
    "AsyncAgent",
    "AsyncArchive",
    "AsyncFolder",
    "AsyncPerdure",
    "Block",
    "BlockLimitExceeded",
    "BlockNotFound",
    "BlockReadOnly",
    "BlockVersion",
    "Conflict",
    "ConversationBusy",
    "Delta",
    "EmptyMessage",
    "File",
    "Folder",
    "HookBlocked",
    "IdempotencyMismatch",
    "ImportResult",
    "ImportedMessage",
    "InvalidInput",
    "MemoryEdited",
    "Message",
    "MessageAdded",
    "MessageTooLarge",
    "Model",
    "ModelDelta",
    "ModelError",
    "ModelNotFound",
    "ModelReply",
    "ModelRequest",
    "NewBlock",
    "NewPassage",
    "NotFound",
    "Passage",
    "Perdure",
    "PerdureError",
    "Question",
    "Reasoning",
    "Reply",
    "RunEnded",
    "RunFailed",
    "Settings",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreTooNew",
    "StoredEvent",
    "Text",
    "TooMany",
    "ToolCall",
    "ToolError",
    "Usage",
    "Verdict",
    "VersionConflict",
    "hook",
    "tool",
]

_HOMES = {
    "core.agents": ("AgentInfo",),
    "core.blocks": ("Block", "BlockVersion"),
    "core.events": ("Delta", "MemoryEdited", "MessageAdded", "RunEnded", "StoredEvent"),
    "core.files": ("File",),
    "core.hooks": ("Verdict",),
    "core.messages": ("Message", "Question", "Reasoning", "Text", "ToolCall"),
    "core.models": ("Model", "ModelDelta", "ModelReply", "ModelRequest"),
    "core.passages": ("Passage",),
    "core.runs": ("Usage",),
    "library": (
        "Agent",
        "Archive",
        "AsyncAgent",
        "AsyncArchive",
        "AsyncFolder",
        "AsyncPerdure",
        "ImportResult",
        "ImportedMessage",
        "Folder",
        "NewBlock",
        "NewPassage",
        "Perdure",
        "Reply",
        "Settings",
        "hook",
        "tool",
    ),
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
