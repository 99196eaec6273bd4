"""Units of work that encrypt what is stored with an older key again, with the key of now. Each takes a bounded number
of rows, and changes none that has the key already."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perdure.core.errors import SecretUnreadable
from perdure.core.features import Point
from perdure.core.ids import ToolId
from perdure.core.models import ModelProvider, seal_provider, unseal_provider
from perdure.core.runs import Callback
from perdure.core.secrets import ORGANISATION, Cipher, Secret
from perdure.core.specs import ToolFilter
from perdure.domain.environment import reseal_environment
from perdure.domain.secrets import open_callback, open_secret, open_variable, put_secret, seal_callback, seal_variable
from perdure.storage.tx import Tx

ROWS = 200
"""Secrets or tools of one transaction."""


@dataclass(frozen=True, slots=True)
class RotationResult:
    """The result of encrypting values again.

    Args:
        count: how many values were encrypted again.
        unreadable: the values that no key could decrypt, in words; they stay as they are.
    """

    count: int = 0
    unreadable: tuple[str, ...] = ()

    def __add__(self, other: RotationResult) -> RotationResult:
        return RotationResult(self.count + other.count, (*self.unreadable, *other.unreadable))


ROTATED: Point[[Tx, Cipher], RotationResult] = Point("secrets_rotated")
"""Encrypts what a feature has stored with an older key again, with the key of now. Raises: SecretKeyMissing."""


def rotate_secrets(tx: Tx, after: Secret | None, *, cipher: Cipher) -> tuple[RotationResult, Secret | None]:
    """Encrypt the next `ROWS` secrets behind `after` again. `after`: the last secret of the step before; None: begin.
    Returns: (the result, the last secret that was looked at; None: there are no more). Raises: SecretKeyMissing."""
    place = (ORGANISATION, "") if after is None else (after.owner_id, after.name)
    page = tx.secrets.list_behind(*place, limit=ROWS)
    rotated = RotationResult()
    for secret in page:
        if cipher.is_current(secret.sealed):
            continue
        try:
            value = open_secret(tx, secret, cipher=cipher)
        except SecretUnreadable:
            rotated += RotationResult(unreadable=(f"secret {secret.name}",))
            continue
        put_secret(tx, secret.owner_id, secret.name, value, cipher=cipher, at=secret.updated_at)
        rotated += RotationResult(1)
    return rotated, page[-1] if page else None


def rotate_registered(tx: Tx, *, cipher: Cipher) -> RotationResult:
    """Encrypt variables of tools, secrets of features and keys of providers again. Raises: SecretKeyMissing."""
    rotated = RotationResult()
    for variable in tx.sandbox.list_variables():
        if cipher.is_current(variable.sealed):
            continue
        try:
            variable = tx.sandbox.get_variable(variable.id)  # as it is now: others may have changed it
            value = open_variable(tx, variable, cipher=cipher)
            tx.sandbox.put_variable(seal_variable(tx, variable, value, cipher=cipher))
            rotated += RotationResult(1)
        except SecretUnreadable:
            rotated += RotationResult(unreadable=(f"variable {variable.name}",))
    rotated = sum(ROTATED(tx, cipher), rotated)
    for provider in tx.providers.list(limit=100_000):
        if not provider.sealed or cipher.is_current(provider.sealed):
            continue
        try:
            provider = tx.providers.get(provider.id)
            key = cipher.decrypt(provider.sealed, bound_to=provider.binding)
            tx.providers.put(replace(provider, sealed=cipher.encrypt(key, bound_to=provider.binding)))
            rotated += RotationResult(1)
        except SecretUnreadable:
            rotated += RotationResult(unreadable=(f"the key of provider {provider.name}",))
    return rotated


def rotate_callbacks(tx: Tx, *, cipher: Cipher) -> RotationResult:
    """Encrypt addresses of callbacks again, and those that older versions stored in plain. Raises: SecretKeyMissing."""
    unreadable: list[str] = []

    def seal(callback: Callback) -> Callback:
        """The callback encrypted with the current key; as it is if it has that, or can't be decrypted."""
        try:
            if callback.sealed and cipher.is_current(base64.b64decode(callback.sealed)):
                return callback
            return seal_callback(open_callback(callback, cipher), cipher)
        except SecretUnreadable:
            unreadable.append(f"the callback {callback.url}")
            return callback

    return RotationResult(tx.callbacks.change_all(seal), tuple(unreadable))


def seal_queries(tx: Tx, *, cipher: Cipher) -> Sequence[ModelProvider]:
    """Encrypt the queries of addresses that older versions stored in plain; return all. Raises: SecretKeyMissing."""
    for provider in tx.providers.list():
        if provider.base_url != provider.shown_url:
            with contextlib.suppress(SecretUnreadable):
                tx.providers.put(seal_provider(provider, unseal_provider(provider, cipher)[0], cipher))
    return tx.providers.list()


def rotate_tools(tx: Tx, after: ToolId | None, *, cipher: Cipher, at: datetime) -> tuple[RotationResult, ToolId | None]:
    """Encrypt the variables of the next `ROWS` tools behind `after` again. `after`: None at first. Returns:
    (the result, the last tool that was looked at; None: there are no more). Raises: SecretKeyMissing."""
    page = tx.tools.page(where=ToolFilter(types=("custom",)), limit=ROWS, after=after)
    codes = tx.tools.codes([tool.id for tool in page])
    rotated = RotationResult()
    for tool in page:
        code = codes.get(tool.id)
        if code is None or all(cipher.is_current(base64.b64decode(one)) for one in code.sealed.values()):
            continue
        tool, code = tx.tools.get(tool.id), tx.tools.code(tool.id)  # as they are now, under a lock
        if code is None:
            continue
        try:
            tx.tools.update(tool, code=reseal_environment(tx, tool.id, code, cipher=cipher), at=at)
            rotated += RotationResult(len(code.sealed))
        except SecretUnreadable:
            rotated += RotationResult(unreadable=(f"the environment of tool {tool.spec.name}",))
    return rotated, page[-1].id if page else None
