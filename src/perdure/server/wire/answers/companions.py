"""Groups in the OpenAPI document, and the passes of companions, which are no part of Letta's API."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from perdure.core.groups.group import GroupKind, PassCause, PassOutcome
from perdure.library.services.groups.companions import PassInfo
from perdure.server.wire import fields as ids
from perdure.server.wire.base import fields


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


class PassEditShape(TypedDict):
    """A block as a pass left it, and the difference."""

    block_id: ids.BlockIdIn
    label: str
    version: int
    diff: str


class PassFailure(TypedDict):
    """Why the run of a pass failed."""

    kind: str
    message: str


class PassShape(TypedDict):
    """A pass: why it began, how it ended, and what it changed. `outcome` is null while it goes on."""

    agent_id: ids.AgentIdIn
    companion_id: ids.AgentIdIn
    number: int
    cause: PassCause
    outcome: PassOutcome | None
    reason: str
    edits: list[PassEditShape]
    last_message_id: ids.MessageIdIn
    run_id: ids.RunIdIn
    steps: int
    tokens: int
    failure: PassFailure | None
    created_at: ids.Time
    ended_at: ids.Time | None


def pass_shape(one: PassInfo) -> dict[str, Any]:
    """A pass."""
    names = ("agent_id", "companion_id", "number", "cause", "outcome", "reason", "last_message_id", "run_id", "steps")
    return fields(one, *names, "created_at", "ended_at", tokens="usage.total_tokens") | {
        "failure": None if one.failure is None else fields(one.failure, "kind", "message"),
        "edits": [fields(edit, *edit.__slots__) for edit in one.edits],
    }
