"""Users and keys: who may use the store through a server, and who did what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.ids import DEFAULT_ORG, KeyId, OrgId, UserId
from perdure.core.incoming.principals import SCOPES, UseLimits, limits_of
from perdure.core.text.reprs import attributes
from perdure.features.access.service import Access
from perdure.features.access.values import ApiKey, AuditEntry, AuditFilter, as_scope
from perdure.library.perdure import AsyncPerdure
from perdure.server.log import trace_id
from perdure.server.wire.http import principal_of
from perdure.ui.render import Data, Notice, Pages, field_of, form_of

SHOWN = 200
AUDIT_SHOWN = 50

LIMIT_LABELS = {
    "requests_per_minute": "Requests a minute",
    "message_chars": "Characters of a message",
    "tokens_per_day": "Tokens a day",
    "cost_per_day": "US dollars a day",
    "tokens_per_run": "Tokens a run",
    "cost_per_run": "US dollars a run",
}

pages = Pages()


def access_of(request: Request, library: AsyncPerdure) -> Access:
    """The administration, on behalf of whoever sent the request."""
    return Access.of(library.app, principal_of(request), trace_id())


@pages.get("/settings/access", "access.html")
async def access(request: Request, library: AsyncPerdure) -> Data:
    """The users and keys of the organisation, without the texts of keys; all organisations, if they may be seen."""
    own, administration, now = principal_of(request).org_id, access_of(request, library), library.app.ports.clock.now()
    users = await administration.users(limit=SHOWN)
    names: dict[str, str] = {user.id: user.name for user in users}
    keys = await administration.keys(limit=SHOWN)
    names |= {key.id: key.name for key in keys}
    rules_all = own == DEFAULT_ORG
    organisations = await administration.organisations(limit=SHOWN) if rules_all else []
    entries = await administration.audit(AuditFilter(), limit=AUDIT_SHOWN)
    return {
        "title": "Users and keys",
        "organisation": (await administration.organisation(own)).name,
        "rules_all": rules_all,
        "organisations": [
            {"id": one.id, "name": one.name, "deleted": one.deleted_at is not None, "own": one.id == own}
            for one in organisations
        ],
        "users": [{"id": user.id, "name": user.name, "created_at": user.created_at} for user in users],
        "keys": [_key_shape(key, names, now) for key in keys],
        "key_needed": request.app.state.gate.needs_key or bool(keys),  # the server looks every few seconds
        "scopes": list(reversed(SCOPES)),
        "limits": LIMIT_LABELS,
        "audit": [_entry_shape(entry, names) for entry in entries],
        "audit_days": library.app.settings.audit_days,
    }


def _key_shape(key: ApiKey, names: dict[str, str], now: datetime) -> Data:
    """A key as the page shows it; `names` maps ids of users to their names."""
    return {
        **attributes(key, "id", "name", "start", "scope", "expires_at", "last_used_at"),
        "user": names.get(key.user_id or "", key.user_id or ""),
        "state": "revoked" if key.revoked_at is not None else "counts" if key.counts_at(now) else "expired",
        "limits": {LIMIT_LABELS[name]: value for name, value in key.limits.present.items()},
    }


def _entry_shape(entry: AuditEntry, names: dict[str, str]) -> Data:
    """An entry of the audit log as the page shows it; `names` maps ids of users and keys to their names."""
    who = entry.user_id or entry.key_id
    shown = names.get(who, who) if who else "this machine, or the server's own key"
    return attributes(entry, "at", "action", "object_id", "trace_id") | {"who": shown}


@pages.post("/settings/access/keys", shows=access)
async def create_key(request: Request, library: AsyncPerdure) -> Notice:
    """Create a key, and show its text this once."""
    form = await form_of(request)
    days = _number(form, "days", whole=True)
    now = library.app.ports.clock.now().astimezone(UTC)
    key, text = await access_of(request, library).create_key(
        field_of(form, "name"),
        as_scope(field_of(form, "scope")),
        user_id=UserId(form["user"]) if form.get("user") else None,
        expires_at=None if days is None else now + timedelta(days=days),
        limits=_limits(form),
    )
    return Notice(f"{key.name}: {text} Copy it now: only its digest is stored, so it can't be shown again.")


@pages.post("/settings/access/keys/{key_id}/revoke", shows=access)
async def revoke_key(request: Request, library: AsyncPerdure) -> Notice:
    """Revoke a key."""
    key = await access_of(request, library).revoke_key(KeyId(request.path_params["key_id"]))
    return Notice(f"{key.name} was revoked: every process refuses it within seconds.")


@pages.post("/settings/access/users", shows=access)
async def create_user(request: Request, library: AsyncPerdure) -> Notice:
    """Create a user."""
    user = await access_of(request, library).create_user(field_of(await form_of(request), "name"))
    return Notice(f"{user.name} was added. Next, create a key for this user.")


@pages.post("/settings/access/users/{user_id}/delete", shows=access)
async def delete_user(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a user with the user's keys."""
    await access_of(request, library).delete_user(UserId(request.path_params["user_id"]))
    return Notice("The user was deleted, and their keys no longer work.")


@pages.post("/settings/access/organisations", shows=access)
async def create_organisation(request: Request, library: AsyncPerdure) -> Notice:
    """Create an organisation with its first key, of an administrator."""
    form = await form_of(request)
    administration = _access_to_all(request, library)
    made = await administration.create_organisation(field_of(form, "name"))
    _, text = await administration.within(made.id).create_key("admin", "admin")
    return Notice(
        f"{made.name} was created. The key of its administrator: {text} Copy it now: it can't be shown again."
    )


@pages.post("/settings/access/organisations/{org_id}/delete", shows=access)
async def delete_organisation(request: Request, library: AsyncPerdure) -> Notice:
    """Delete an organisation with everything in it."""
    await _access_to_all(request, library).delete_organisation(OrgId(request.path_params["org_id"]))
    return Notice("Its keys stop working within seconds. Everything else in it is being removed.")


def _access_to_all(request: Request, library: AsyncPerdure) -> Access:
    """The administration. Raises: InvalidInput: the request's administrator is not of the default organisation."""
    if principal_of(request).org_id != DEFAULT_ORG:
        raise InvalidInput("organisations are made and deleted by administrators of the default one")
    return access_of(request, library)


def _limits(form: dict[str, str]) -> UseLimits:
    """The limits of a key that a form sets; its empty fields set none. Raises: InvalidInput: one is no number."""
    values: dict[str, Any] = {name: _number(form, name, whole=not name.startswith("cost")) for name in LIMIT_LABELS}
    return limits_of({name: value for name, value in values.items() if value is not None})


def _number(form: dict[str, str], name: str, *, whole: bool) -> int | float | None:
    """The number in a field of a form; None: the field is empty. Raises: InvalidInput: it is no number."""
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        return int(text) if whole else float(text)
    except ValueError as error:
        raise InvalidInput(f"{LIMIT_LABELS.get(name, name)}: {text!r:.40} is not a number") from error
