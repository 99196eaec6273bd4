"""Secrets: values that tools need and nobody else sees, encrypted where they are stored.

One belongs to an organisation (`ORGANISATION`) or to an agent. What encrypts is a port; nothing here holds a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from perdure.core.errors import InvalidInput, NotFound, SecretKeyMissing
from perdure.core.ids import AgentId

if TYPE_CHECKING:
    from perdure.core.tx import Tx

__all__ = [
    "ORGANISATION",
    "REFERENCE",
    "SECRET_VALUE_CHARS_MAX",
    "Cipher",
    "NoCipher",
    "Secret",
    "check_secret",
    "open_secret",
    "put_secret",
    "resolve_environment",
    "resolved",
    "secret_names",
]

ORGANISATION = ""
"""The owner of a secret that all agents' tools may be given, by `secret:NAME`."""

REFERENCE = "secret:"
SECRET_VALUE_CHARS_MAX = 32_768
"""As much as a variable of a process's environment can well hold."""

NAMES_SHOWN = 10
_NOT_IN_ENVIRONMENTS = re.compile("[\x00\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One secret as it is stored: `sealed` is its encrypted value, for this owner and name only."""

    owner_id: str
    name: str
    sealed: bytes = field(repr=False)
    created_at: datetime
    updated_at: datetime


class Cipher(Protocol):
    """What encrypts small values, with a key of its own.

    `bound_to` says what the value is for. It is not stored: what was encrypted for one thing can't be decrypted as
    another, so a row copied over another's is refused.
    """

    def encrypt(self, plain: bytes, *, bound_to: str) -> bytes:
        """The same value gives other bytes each time. Raises: SecretKeyMissing."""
        ...

    def decrypt(self, sealed: bytes, *, bound_to: str) -> bytes:
        """Raises: SecretKeyMissing; SecretUnreadable: another key, another purpose, or damaged."""
        ...


class NoCipher:
    """`Cipher` of a program that has no key: it refuses."""

    def encrypt(self, plain: bytes, *, bound_to: str) -> bytes:
        raise SecretKeyMissing

    def decrypt(self, sealed: bytes, *, bound_to: str) -> bytes:
        raise SecretKeyMissing


def check_secret(name: str, value: str) -> None:
    """Nothing, when both can stand in a process's environment. Raises: InvalidInput; the value is never in it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"secret name {name!r:.80} can't be used: up to 128 ASCII letters, digits and _, not beginning with a digit"
        )
    if not isinstance(value, str):
        raise InvalidInput(f"the value of secret {name} is a {type(value).__name__}: give a text")
    if len(value) > SECRET_VALUE_CHARS_MAX:
        size = f"{len(value):,} characters, the limit is {SECRET_VALUE_CHARS_MAX:,}"
        raise InvalidInput(f"the value of secret {name} has {size}: keep it in a file, and its place in the secret")
    if _NOT_IN_ENVIRONMENTS.search(value):
        raise InvalidInput(f"the value of secret {name} has a NUL or half a character, which no environment can hold")


def put_secret(tx: Tx, owner_id: str, name: str, value: str, *, cipher: Cipher, at: datetime) -> Secret:
    """The secret, made or changed. Raises: InvalidInput, SecretKeyMissing; NotFound: no agent of this id."""
    check_secret(name, value)
    sealed = cipher.encrypt(value.encode(), bound_to=_bound(tx, owner_id, name))
    return tx.secrets.put(owner_id, name, sealed, at=at)


def open_secret(tx: Tx, secret: Secret, *, cipher: Cipher) -> str:
    """Its value. Raises: SecretKeyMissing, SecretUnreadable."""
    return cipher.decrypt(secret.sealed, bound_to=_bound(tx, secret.owner_id, secret.name)).decode()


def resolved(tx: Tx, values: Mapping[str, str], *, cipher: Cipher) -> dict[str, str]:
    """The mapping with the organisation's secrets in place of `secret:NAME`.

    Raises: NotFound: there is no such secret; SecretKeyMissing, SecretUnreadable.
    """
    return {key: _value(tx, value, cipher) for key, value in values.items()}


def resolve_environment(
    tx: Tx, agent_id: AgentId | None, environment: Mapping[str, str], *, cipher: Cipher
) -> dict[str, str]:
    """What a tool is run with: its own environment, `secret:NAME` resolved, and over it the agent's own secrets.

    Raises: NotFound: there is no such secret; SecretKeyMissing, SecretUnreadable.
    """
    made = resolved(tx, environment, cipher=cipher)
    for secret in () if agent_id is None else tx.secrets.list(agent_id):
        made[secret.name] = open_secret(tx, secret, cipher=cipher)
    return made


def secret_names(tx: Tx, agent_id: AgentId | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Which variables of `resolve_environment` hold a secret: variable -> the secret's name."""
    names = {
        key: value.removeprefix(REFERENCE).strip() for key, value in environment.items() if value.startswith(REFERENCE)
    }
    own = () if agent_id is None else tx.secrets.list(agent_id)
    return names | {secret.name: secret.name for secret in own}


def _value(tx: Tx, value: str, cipher: Cipher) -> str:
    if not value.startswith(REFERENCE):
        return value
    name = value.removeprefix(REFERENCE).strip()
    secret = tx.secrets.find(ORGANISATION, name)
    if secret is None:
        names = [known.name for known in tx.secrets.list(ORGANISATION)][:NAMES_SHOWN]
        hint = f"there are {', '.join(names)}" if names else "there is none yet"
        raise NotFound("secret", name[:80], hint=f"{hint}; `perdure secret set NAME` makes one")
    return open_secret(tx, secret, cipher=cipher)


def _bound(tx: Tx, owner_id: str, name: str) -> str:
    return f"secret/{tx.org_id}/{owner_id}/{name}"
