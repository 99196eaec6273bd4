"""Organisations, users, keys and the audit log on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from perdure.core.access.audit import AuditEntry
from perdure.core.access.values import NAME_CHARS, ApiKey, Organisation, Scope, User
from perdure.server.wire.access.limits import LimitsIn
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import UserIdIn

Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS)]


class NamedIn(WireRequest):
    """A new organisation or user."""

    name: Name


class KeyIn(WireRequest):
    """A new API key."""

    name: Name
    scope: Scope = "user"
    user_id: UserIdIn | None = None
    expires_at: AwareDatetime | None = None
    limits: LimitsIn = Field(default_factory=LimitsIn)


def organisation_shape(one: Organisation) -> dict[str, Any]:
    return {"id": one.id, "name": one.name, "created_at": _time(one.created_at), "deleted_at": _time(one.deleted_at)}


def user_shape(user: User) -> dict[str, Any]:
    return {"id": user.id, "organization_id": user.org_id, "name": user.name, "created_at": _time(user.created_at)}


def key_shape(key: ApiKey, text: str | None = None) -> dict[str, Any]:
    """A key; `text` is shown once, in the answer that made it."""
    return {
        "id": key.id,
        "organization_id": key.org_id,
        "user_id": key.user_id,
        "name": key.name,
        "start": key.start,
        "scope": key.scope,
        "limits": dict(key.limits.some),
        "created_at": _time(key.created_at),
        "expires_at": _time(key.expires_at),
        "last_used_at": _time(key.last_used_at),
        "revoked_at": _time(key.revoked_at),
        "key": text,
    }


def audit_shape(entry: AuditEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "at": _time(entry.at),
        "user_id": entry.user_id,
        "key_id": entry.key_id,
        "action": entry.action,
        "object_id": entry.object_id,
        "trace_id": entry.trace_id,
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
