"""Organisations, users, keys, their limits and the audit log on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, ConfigDict, Field

from perdure.core.access.values import LIMIT_MAX, NAME_CHARS, ApiKey, AuditEntry, Limits, Organisation, Scope, User
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import UserIdIn
from perdure.server.wire.shapes import WireShape

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


class _AccessShape(WireShape):
    """Its times are written as Python does."""

    _time = datetime.isoformat


class OrganizationAnswer(_AccessShape, of=Organisation, fields="id name created_at deleted_at"):
    """An organisation. `deleted_at`: it is being removed."""


class UserAnswer(_AccessShape, of=User, fields="id name created_at", organization_id="org_id"):
    """A user of the key's organisation."""


class KeyAnswer(
    _AccessShape,
    of=ApiKey,
    fields="id user_id name start scope created_at expires_at last_used_at revoked_at",
    organization_id="org_id",
    limits="limits.some",
):
    """An API key. `key` is its text, in the answer that made it and never again; `start` its first characters."""

    limits: dict[str, float]
    key: str | None = None


class AuditAnswer(_AccessShape, of=AuditEntry, fields="seq at user_id key_id action object_id trace_id"):
    """Who did what to which object; `trace_id` is that of the request in the server's log."""
