"""Organisations, users, keys, their limits and the audit log on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from perdure.core.incoming.principals import Scope
from perdure.features.access.values import NAME_CHARS, ApiKey, AuditEntry, Organisation, User
from perdure.server.wire.agents import LimitsIn
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import UserIdIn
from perdure.server.wire.shapes import WireShape

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
    """The base of this file's answers, whose times are written by `datetime.isoformat`."""

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
    limits="limits.present",
):
    """An API key. `key` is its text, in the answer that made it and never again; `start` its first characters."""

    limits: dict[str, float]
    key: str | None = None


class AuditAnswer(_AccessShape, of=AuditEntry, fields="seq at user_id key_id action object_id trace_id"):
    """Who did what to which object; `trace_id` is that of the request in the server's log."""
