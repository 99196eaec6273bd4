"""Organisations, users, keys, their limits and the audit log on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, ConfigDict, Field
from typing_extensions import TypedDict

from perdure.core.access.values import LIMIT_MAX, NAME_CHARS, ApiKey, AuditEntry, Limits, Organisation, Scope, User
from perdure.core.text.reprs import attributes
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import UserIdIn

_Count = Annotated[int, Field(ge=1, lt=LIMIT_MAX)]
Dollars = Annotated[float, Field(gt=0, lt=LIMIT_MAX)]


class LimitsIn(WireRequest):
    """What a key or an agent may use; a field that is missing or null is no limit. Days and minutes are those of UTC,
    costs are in US dollars, of models with a known price."""

    # A misspelt limit must not become none.
    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: _Count | None = None
    message_chars: _Count | None = None
    tokens_per_day: _Count | None = None
    cost_per_day: Dollars | None = None
    tokens_per_run: _Count | None = None
    cost_per_run: Dollars | None = None

    @property
    def limits(self) -> Limits:
        """The values, as the library takes them."""
        return Limits(**self.model_dump())


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
    return _fields(one, "id", "name", "created_at", "deleted_at")


def user_shape(user: User) -> dict[str, Any]:
    return _fields(user, "id", organization_id="org_id", name="name", created_at="created_at")


def key_shape(key: ApiKey, text: str | None = None) -> dict[str, Any]:
    """A key; `text` is shown once, in the answer that made it."""
    return {
        **_fields(key, "id", organization_id="org_id"),
        **_fields(key, "user_id", "name", "start", "scope", limits="limits.some"),
        **_fields(key, "created_at", "expires_at", "last_used_at", "revoked_at"),
        "key": text,
    }


def audit_shape(entry: AuditEntry) -> dict[str, Any]:
    return _fields(entry, "seq", "at", "user_id", "key_id", "action", "object_id", "trace_id")


def _fields(value: object, *names: str, **others: str) -> dict[str, Any]:
    found = attributes(value, *names, **others)
    return {name: one.isoformat() if isinstance(one, datetime) else one for name, one in found.items()}


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
