"""The answers about organisations, users, keys and the audit log."""

from __future__ import annotations

from typing_extensions import TypedDict

from perdure.core.access.values import Scope


class OrganizationAnswer(TypedDict):
    """An organisation. `deleted_at`: it is being removed."""

    id: str
    name: str
    created_at: str
    deleted_at: str | None


class UserAnswer(TypedDict):
    """A user of the key's organisation."""

    id: str
    organization_id: str
    name: str
    created_at: str


class KeyAnswer(TypedDict):
    """An API key. `key` is its text, in the answer that made it and never again; `start` its first characters."""

    id: str
    organization_id: str
    user_id: str | None
    name: str
    start: str
    scope: Scope
    limits: dict[str, float]
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None
    key: str | None


class AuditAnswer(TypedDict):
    """Who did what to which object; `trace_id` is that of the request in the server's log."""

    seq: int
    at: str
    user_id: str | None
    key_id: str | None
    action: str
    object_id: str
    trace_id: str
