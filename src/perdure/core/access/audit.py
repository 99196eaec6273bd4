"""The audit log: who did what to which object. It holds no contents and no secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from perdure.core.ids import KeyId, OrgId, UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action from outside that succeeded.

    Args:
        seq: its number, which grows; 0 before it is stored.
        action: such as `key.create` or `PATCH /v1/blocks/{block_id}`.
        object_id: the id of what it was done to; empty: there is none, or the action made it.
        trace_id: of the request, as in the server's log; empty: a command.
    """

    seq: int = 0
    org_id: OrgId
    at: datetime
    user_id: UserId | None = None
    key_id: KeyId | None = None
    action: str
    object_id: str = ""
    trace_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries: all conditions hold. `action` is a part of it."""

    user_id: UserId | None = None
    key_id: KeyId | None = None
    action: str | None = None
    object_id: str | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """What was used in a period: requests, tokens, and dollars."""

    requests: int = 0
    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Used) -> Used:
        return Used(self.requests + other.requests, self.tokens + other.tokens, self.cost + other.cost)
