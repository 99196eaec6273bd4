"""Secrets: values that tools need and nobody else sees, encrypted where they are stored.

One belongs to an organisation (`ORGANISATION`) or to an agent. What encrypts is a port; nothing here holds a key.
Units of work that seal and open secrets stand in `core.secret_access`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from perdure.core.errors import InvalidInput, SecretKeyMissing

__all__ = [
    "ORGANISATION",
    "REFERENCE",
    "SECRET_VALUE_CHARS_MAX",
    "Cipher",
    "NoCipher",
    "Secret",
    "check_secret",
]

ORGANISATION = ""
"""The owner of a secret that all agents' tools may be given, by `secret:NAME`."""

REFERENCE = "secret:"
SECRET_VALUE_CHARS_MAX = 32_768
"""As much as a variable of a process's environment can well hold."""

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
