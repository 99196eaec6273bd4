"""The shape of a group in the OpenAPI document."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from perdure.core.groups.group import GroupKind
from perdure.server.wire import fields as ids


class Group(TypedDict):
    id: ids.GroupIdIn
    manager_type: GroupKind
    agent_ids: list[ids.AgentIdIn]
    description: str
    project_id: str | None
    shared_block_ids: list[ids.BlockIdIn]
    manager_agent_id: ids.AgentIdIn | None
    termination_token: str | None
    max_turns: int | None
    sleeptime_agent_frequency: int | None
    turns_counter: int | None
    last_processed_message_id: str | None
    max_message_buffer_length: int | None
    min_message_buffer_length: int | None
    hidden: bool | None
    max_tokens: NotRequired[int]
    max_cost_usd: NotRequired[float]
