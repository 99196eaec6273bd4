"""Organisations, users, API keys and the audit log. All need the scope `admin`; they are about the key's organisation.

Letta's API has no such routes. Organisations are made and deleted by administrators of the default one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Depends, HTTPException, Path, Query, Request
from pydantic import AwareDatetime, Field

from perdure.core.errors import NotFound
from perdure.core.ids import DEFAULT_ORG, KeyId
from perdure.core.incoming.principals import Scope
from perdure.features.access.service import Access
from perdure.features.access.values import NAME_CHARS, ApiKey, AuditEntry, AuditFilter, Organisation, User
from perdure.server.log import trace_id
from perdure.server.wire.agents import LimitsIn
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import KeyIdIn, OrgIdIn, UserIdIn
from perdure.server.wire.http import Limit, Router, library_of, principal_of
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
    """The base of the answers here, whose times are written by `datetime.isoformat`."""

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


router = Router(tags=["access"])

_OrgPath = Annotated[OrgIdIn, Path(description="The id of the organisation.")]
_UserPath = Annotated[UserIdIn, Path(description="The id of the user.")]
_KeyPath = Annotated[KeyIdIn, Path(description="The id of the key.")]


async def _access(request: Request) -> Access:
    """The administration, on behalf of whoever sent the request."""
    return Access.of(library_of(request).app, principal_of(request), trace_id())


Administration = Annotated[Access, Depends(_access)]


def _check_default(request: Request) -> None:
    """Raises: HTTPException: the request's key is of another organisation than the default one."""
    if principal_of(request).org_id != DEFAULT_ORG:
        raise HTTPException(403, "organisations are made and deleted by administrators of the default one")


def _check_own(request: Request, org_id: str) -> None:
    """Raises: NotFound: the request's key belongs neither to this organisation nor to the default one, which sees
    all."""
    if principal_of(request).org_id not in (org_id, DEFAULT_ORG):
        raise NotFound("org", org_id)


@router.post("/v1/organizations/")
async def create_organization(body: NamedIn, request: Request, access: Administration) -> OrganizationAnswer:
    """Create an organisation. Only administrators of the default one may."""
    _check_default(request)
    return OrganizationAnswer.make(await access.create_organisation(body.name))


@router.get("/v1/organizations/")
async def list_organizations(
    request: Request, access: Administration, after: OrgIdIn | None = None, limit: Limit = None
) -> list[OrganizationAnswer]:
    """List the organisations, oldest first; administrators of others than the default one see their own."""
    own = principal_of(request).org_id
    if own != DEFAULT_ORG:
        return [OrganizationAnswer.make(await access.organisation(own))]
    return [OrganizationAnswer.make(one) for one in await access.organisations(after=after, limit=limit or 50)]


@router.get("/v1/organizations/{org_id}")
async def retrieve_organization(org_id: _OrgPath, request: Request, access: Administration) -> OrganizationAnswer:
    """Get an organisation."""
    _check_own(request, org_id)
    return OrganizationAnswer.make(await access.organisation(org_id))


@router.delete("/v1/organizations/{org_id}")
async def delete_organization(org_id: _OrgPath, request: Request, access: Administration) -> None:
    """Delete an organisation with everything in it: its keys end within seconds, the rest is removed afterwards."""
    _check_own(request, org_id)
    _check_default(request)
    await access.delete_organisation(org_id)


@router.post("/v1/users/")
async def create_user(body: NamedIn, access: Administration) -> UserAnswer:
    """Create a user. What a key of the user writes carries the user's id."""
    return UserAnswer.make(await access.create_user(body.name))


@router.get("/v1/users/")
async def list_users(access: Administration, after: UserIdIn | None = None, limit: Limit = None) -> list[UserAnswer]:
    """List the users, oldest first."""
    return [UserAnswer.make(user) for user in await access.users(after=after, limit=limit or 50)]


@router.get("/v1/users/{user_id}")
async def retrieve_user(user_id: _UserPath, access: Administration) -> UserAnswer:
    """Get a user."""
    return UserAnswer.make(await access.user(user_id))


@router.delete("/v1/users/{user_id}")
async def delete_user(user_id: _UserPath, access: Administration) -> None:
    """Delete a user. The user's keys become invalid; their rows stay without the user's data."""
    await access.delete_user(user_id)


@router.post("/v1/keys/")
async def create_key(body: KeyIn, access: Administration) -> KeyAnswer:
    """Create an API key. This answer alone has its text: only a digest is stored."""
    key, text = await access.create_key(
        body.name, body.scope, user_id=body.user_id, expires_at=body.expires_at, limits=body.limits.limits
    )
    return KeyAnswer.make(key, key=text)


@router.get("/v1/keys/")
async def list_keys(
    access: Administration, user_id: UserIdIn | None = None, after: KeyIdIn | None = None, limit: Limit = None
) -> list[KeyAnswer]:
    """List the API keys, oldest first, without their texts; revoked and expired ones included."""
    return [KeyAnswer.make(one) for one in await access.keys(user_id=user_id, after=after, limit=limit or 50)]


@router.get("/v1/keys/{key_id}")
async def retrieve_key(key_id: _KeyPath, access: Administration) -> KeyAnswer:
    """Get an API key, without its text."""
    return KeyAnswer.make(await access.key(KeyId(key_id)))


@router.delete("/v1/keys/{key_id}")
async def revoke_key(key_id: _KeyPath, access: Administration) -> KeyAnswer:
    """Revoke an API key: every process refuses it within seconds. It stays in the list."""
    return KeyAnswer.make(await access.revoke_key(KeyId(key_id)))


@router.get("/v1/audit")
async def list_audit(
    access: Administration,
    action: Annotated[str | None, Query(max_length=200, description="A part of the action.")] = None,
    user_id: UserIdIn | None = None,
    key_id: KeyIdIn | None = None,
    object_id: Annotated[str | None, Query(max_length=200, description="Of what it was done to.")] = None,
    before: Annotated[int | None, Query(ge=1, le=2**53, description="The `seq` of the last entry seen.")] = None,
    limit: Limit = None,
) -> list[AuditAnswer]:
    """List who did what, newest first: administration, and changes of agents and memory by requests with a key."""
    where = AuditFilter(action=action, user_id=user_id, key_id=key_id, object_id=object_id)
    return [AuditAnswer.make(one) for one in await access.audit(where, before=before, limit=limit or 50)]
