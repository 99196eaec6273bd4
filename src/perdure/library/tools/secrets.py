"""Secrets of an agent or of the store, variables of all custom tools, and the rotation of the key that encrypts them
for all organisations of a store. The values go to tools only, and are never read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.app import open_store
from perdure.app.parts import add_key, cipher_of, forget_old_keys, key_file_of
from perdure.core.errors import Conflict
from perdure.core.ids import SandboxId, ToolId, VariableId
from perdure.core.ports import Clock
from perdure.core.secrets import ORGANISATION, Cipher, SandboxConfig, Secret, Variable, check_secret
from perdure.domain.rotation import RotationResult as RotationResult
from perdure.domain.rotation import rotate_callbacks, rotate_registered, rotate_secrets, rotate_tools
from perdure.domain.secrets import put_secret, seal_variable
from perdure.domain.values import check_item_limits
from perdure.engine.ports import SystemClock
from perdure.library.parts.checks import Page, check_text
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.settings import Settings
from perdure.storage.store import Store
from perdure.storage.tx import Tx


class AsyncSecrets(AsyncPart):
    """The secrets of one owner. Their values go to tools that name them, and nowhere else."""

    async def set(self, name: str, value: str) -> Secret:
        """Add or change a secret; return it, encrypted.

        Args:
            name: letters, digits and `_`, as of an environment variable.
            value: at most 32,768 characters.
        Raises: InvalidInput, SecretKeyMissing, SecretUnreadable; NotFound: the agent is gone; StoreError.
        """
        check_secret(name, value)
        ports = self._ports
        return await ports.store.write(
            put_secret, self._owner_id, name, value, cipher=ports.cipher, at=ports.clock.now()
        )

    @reads
    def list(self, tx: Tx) -> Sequence[Secret]:
        """The owner's secrets, sorted by name, encrypted. Raises: NotFound: the agent is gone."""
        if self._agent_id is not None:
            tx.agents.model(self._agent_id)
        return tx.secrets.list(self._owner_id)

    async def delete(self, name: str) -> None:
        """Remove a secret. Raises: NotFound."""
        check_text("a secret's name", name)
        await self._ports.store.write(lambda tx: tx.secrets.delete(self._owner_id, name))

    @property
    def _owner_id(self) -> str:
        return self._agent_id or ORGANISATION


class SandboxVariables(AsyncPart):
    """The organisation's one sandbox configuration, with its variables."""

    @writes
    def put(self, tx: Tx, settings: Mapping[str, Any] | None, config_id: SandboxId | None = None) -> SandboxConfig:
        """Store these settings as the configuration, or with None keep what there is, empty if nothing; return it.

        Raises: NotFound: it has another id than `config_id`; TooMany.
        """
        id_, now = SandboxId(self._ports.ids.new("sandbox")), self._ports.clock.now()
        before = tx.sandbox.find() if config_id is None else tx.sandbox.get(config_id)
        if settings is None and before is not None:
            return before
        check_item_limits(tx.limits, settings=settings)
        return tx.sandbox.put(SandboxConfig(id=id_, settings=settings or {}, created_at=now, updated_at=now))

    async def find(self) -> SandboxConfig | None:
        """The configuration; None: there is none."""
        return await self._ports.store.read(lambda tx: tx.sandbox.find())

    async def delete(self, config_id: SandboxId) -> None:
        """Delete the configuration with its variables. Raises: NotFound."""
        await self._ports.store.write(lambda tx: tx.sandbox.delete(config_id))

    @writes
    def add_variable(self, tx: Tx, config_id: SandboxId, name: str, value: str, description: str | None) -> Variable:
        """A new variable of all custom tools, encrypted.

        Raises: InvalidInput, SecretKeyMissing, TooMany; NotFound: there is no such configuration; AlreadyExists: its
            name.
        """
        check_secret(name, value)
        now = self._ports.clock.now()
        unsealed = Variable(
            id=VariableId(self._ports.ids.new("variable")),
            config_id=config_id,
            name=name,
            sealed=b"",
            description=description,
            created_at=now,
            updated_at=now,
        )
        tx.sandbox.get(config_id)
        check_item_limits(tx.limits, description=description)
        variable = seal_variable(tx, unsealed, value, cipher=self._ports.cipher)
        tx.sandbox.add_variable(variable)
        return variable

    @writes
    def update_variable(
        self, tx: Tx, variable_id: VariableId, name: str | None, value: str | None, description: str | None
    ) -> Variable:
        """The variable as changed; None leaves a field, and an empty value the stored one.

        Raises: InvalidInput, SecretKeyMissing, NotFound; AlreadyExists: another one has the name.
        """
        now = self._ports.clock.now()
        check_item_limits(tx.limits, description=description)
        before = tx.sandbox.get_variable(variable_id)
        after = replace(before, name=name or before.name, updated_at=now)
        if description is not None:
            after = replace(after, description=description)
        check_secret(after.name, value or "")
        if value:
            after = seal_variable(tx, after, value, cipher=self._ports.cipher)
        tx.sandbox.put_variable(after)
        return after

    @reads
    def list_variables(self, tx: Tx, config_id: SandboxId, page: Page) -> Sequence[Variable]:
        """A page of the variables, oldest first; their values stay encrypted. Raises: NotFound."""
        tx.sandbox.get(config_id)
        variables = sorted(tx.sandbox.list_variables(), key=lambda one: (one.created_at, one.name))
        return page.select(variables, kind="variable", id_of=lambda one: one.id)

    async def delete_variable(self, variable_id: VariableId) -> None:
        """Remove a variable. Raises: NotFound."""
        await self._ports.store.write(lambda tx: tx.sandbox.delete_variable(variable_id))


PASSES = 10
"""How often the whole store is gone through, until nothing is found: others may encrypt with the old key meanwhile."""


async def rotate_store(settings: Settings, *, forget_old: bool = False) -> RotationResult:
    """Encrypt everything in the store of the settings with the newest key. Without the setting `secret_key` the file
    beside the store gets a new one first. Killed, it goes on when it is called again.

    Args:
        forget_old: whether older keys then leave that file; backups from before can't be read any more.
    Raises: StoreError, SecretKeyMissing, SecretUnreadable, InvalidInput; Conflict: the keys have to stay.
    """
    clock, address = SystemClock(), settings.store_address
    file = None if settings.secret_key else key_file_of(address)
    store = await open_store(address, at=clock.now(), limits=settings)
    try:
        if file is not None and file.exists():
            add_key(file)
        rotated, cipher = RotationResult(), cipher_of(settings, address)
        for _ in range(PASSES):
            found = RotationResult()
            for org_id in await store.read(lambda tx: tx.secrets.organisations()):
                found += await _rotate_one(store.for_organisation(org_id), cipher, clock)
            rotated = RotationResult(rotated.count + found.count, found.unreadable)
            if not found.count:
                break
    finally:
        await store.close()
    if forget_old and file is not None and file.exists():
        if rotated.unreadable:
            raise Conflict("the older keys stay: some values could not be decrypted by any of them")
        forget_old_keys(file)
    return rotated


async def _rotate_one(store: Store, cipher: Cipher, clock: Clock) -> RotationResult:
    """Encrypt what an organisation has with the newest key, in steps of bounded size; return what was not before."""
    rotated = await store.write(rotate_registered, cipher=cipher)
    rotated += await store.write(rotate_callbacks, cipher=cipher)
    secret: Secret | None = None
    tool: ToolId | None = None
    while True:
        more, secret = await store.write(rotate_secrets, secret, cipher=cipher)
        rotated += more
        if secret is None:
            break
    while True:
        more, tool = await store.write(rotate_tools, tool, cipher=cipher, at=clock.now())
        rotated += more
        if tool is None:
            return rotated
