"""Organisations, users, API keys and the audit log."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime

from perdure.core.errors import InvalidInput
from perdure.core.ids import KeyId, OrgId, UserId
from perdure.core.incoming.principals import SCOPES, Scope, UseLimits
from perdure.core.text.forms import name_form

NAME_CHARS = 200
KEYS_PER_ORGANISATION = 10_000
USERS_PER_ORGANISATION = 100_000


def as_scope(text: str) -> Scope:
    """Return the scope of this name. Raises: InvalidInput: there is none."""
    for scope in SCOPES:
        if text == scope:
            return scope
    raise InvalidInput(f"the scope is {text!r:.60}: one of {', '.join(reversed(SCOPES))} is needed")


def check_name(what: str, name: str) -> str:
    """Return the name of `what`, such as "a user", in its stored form. Raises: InvalidInput: empty or too long."""
    name = name_form(name).strip()
    if not name or len(name) > NAME_CHARS or not name.isprintable():
        raise InvalidInput(f"the name of {what} is {name!r:.60}: 1 to {NAME_CHARS} printable characters are needed")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Organisation:
    """One tenant of a store; nothing of one is seen by another.

    Args:
        number: its place in the order in which organisations, users and keys were created; 0: not stored yet.
        deleted_at: since when it is being removed, with everything in it; none of its keys counts any more.
    """

    id: OrgId
    number: int = 0
    name: str
    created_at: datetime
    deleted_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person of an organisation, in which `name` occurs once; `number` is the place in the order of creation."""

    id: UserId
    org_id: OrgId
    number: int = 0
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key without its text, of which only a digest is stored.

    Args:
        number: its place in the order of creation.
        user_id: the user whom it belongs to; None: it is a program's.
        start: the first characters of the text, by which people tell keys apart.
        digest: the SHA-256 of the text, in hexadecimal digits.
    """

    id: KeyId
    org_id: OrgId
    number: int = 0
    user_id: UserId | None = None
    name: str
    start: str
    digest: str = field(repr=False)
    scope: Scope
    limits: UseLimits = field(default_factory=UseLimits)
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None

    def counts_at(self, now: datetime) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


PREFIX = "perdure_"
"""By which people and scanners of leaked secrets recognise a key."""

KEY_BYTES = 32
"""The random part of a key: 256 bits."""

START_CHARS = len(PREFIX) + 6
_FORM = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")


def key_text(secret: bytes) -> str:
    """Return the text of a key, made of `KEY_BYTES` random bytes."""
    assert len(secret) == KEY_BYTES
    return PREFIX + base64.urlsafe_b64encode(secret).decode().rstrip("=")


def is_key(text: str) -> bool:
    """Whether the text has the form of a key; if not, nothing needs to be looked up."""
    return _FORM.fullmatch(text) is not None


def digest_of(text: str) -> str:
    """The digest of a key, as hexadecimal digits.

    SHA-256 without salt is right here, unlike for passwords: there is no dictionary of 256 random bits to try, so a
    slow function would protect nothing and cost time with each request. Without a salt an index finds the key.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


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
    """Which entries of the audit log are listed: those that fit every field that is set, of `action` in any part."""

    user_id: UserId | None = None
    key_id: KeyId | None = None
    action: str | None = None
    object_id: str | None = None
