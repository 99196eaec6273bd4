"""Secrets: values for tools that nobody else sees, encrypted in the store.

A secret belongs to the organisation (`ORGANISATION`) or to an agent. The cipher is a port; nothing here holds a key.
`domain.secrets` has the units of work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from perdure.core.errors import InvalidInput, SecretKeyMissing
from perdure.core.ids import SandboxId, VariableId

ORGANISATION = ""
"""The owner of secrets that all agents' tools may use, by `secret:NAME`."""

REFERENCE = "secret:"
SECRET_VALUE_CHARS_MAX = 32_768
"""The most characters of a value: it becomes a variable of a process's environment."""

_NOT_IN_ENVIRONMENTS = re.compile("[\x00\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A stored secret: `sealed` is its encrypted value, for this owner and name only."""

    owner_id: str
    name: str
    sealed: bytes = field(repr=False)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """The configuration of an organisation's sandbox, of which there is one. `settings` are only stored and shown."""

    id: SandboxId
    settings: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable that every custom tool of an organisation gets: `sealed` is its encrypted value, for this id only."""

    id: VariableId
    config_id: SandboxId
    name: str
    sealed: bytes = field(repr=False)
    description: str | None = None
    created_at: datetime
    updated_at: datetime


class Cipher(Protocol):
    """Encrypts small values with its own key.

    `bound_to` names the purpose of a value and is not stored. A value can't be decrypted for another purpose, so a row
    that is copied over another is refused.
    """

    def encrypt(self, plain: bytes, *, bound_to: str) -> bytes:
        """Encrypt a value; equal values give different bytes. Raises: SecretKeyMissing."""

    def decrypt(self, sealed: bytes, *, bound_to: str) -> bytes:
        """Decrypt a value. Raises: SecretKeyMissing; SecretUnreadable: another key or purpose, or damage."""

    def is_current(self, sealed: bytes) -> bool:
        """Whether the value was encrypted with the key of now. Raises: SecretKeyMissing, SecretUnreadable."""


class NoCipher:
    """The `Cipher` of a program without a key: it refuses."""

    def encrypt(self, plain: bytes, *, bound_to: str) -> bytes:
        raise SecretKeyMissing

    def decrypt(self, sealed: bytes, *, bound_to: str) -> bytes:
        raise SecretKeyMissing

    def is_current(self, sealed: bytes) -> bool:
        raise SecretKeyMissing


def check_secret(name: str, value: str) -> None:
    """Check that name and value fit a process's environment. Raises: InvalidInput, never with the value in it."""
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
