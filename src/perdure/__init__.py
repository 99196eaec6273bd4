"""Perdure: stateful agents that remember.

from perdure import Perdure

with Perdure("agents.db") as perdure:
    agent = perdure.create_agent("helper")
    print(agent.send("My name is Ada.").text)
"""

from __future__ import annotations

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
