"""Secrets of an agent or of the organisation, and variables of all custom tools: their values go to tools only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.app import App
from perdure.core.ids import AgentId, SandboxId, VariableId
from perdure.core.secrets import ORGANISATION, SandboxConfig, Secret, Variable, check_secret
from perdure.domain.secrets import put_secret, seal_variable
from perdure.domain.values import check_item_limits
from perdure.library.checks import check_text
from perdure.library.paging import Page
from perdure.storage.tx import Tx


class SecretService:
    """The operations on secrets. `owner` is an agent, or None for the organisation."""

    def __init__(self, app: App) -> None:
        self._ports = app.ports

    async def set(self, owner: AgentId | None, name: str, value: str) -> Secret:
        """The secret, made or changed, encrypted."""
        check_secret(name, value)
        ports = self._ports
        return await ports.store.write(
            put_secret, _owner_id(owner), name, value, cipher=ports.cipher, at=ports.clock.now()
        )

    async def list(self, owner: AgentId | None) -> Sequence[Secret]:
        """Sorted by name; the values stay encrypted. Raises: NotFound: there is no such agent."""

        def load(tx: Tx) -> Sequence[Secret]:
            if owner is not None:
                tx.agents.model(owner)
            return tx.secrets.list(_owner_id(owner))

        return await self._ports.store.read(load)

    async def delete(self, owner: AgentId | None, name: str) -> None:
        """Raises: NotFound."""
        check_text("a secret's name", name)
        await self._ports.store.write(lambda tx: tx.secrets.delete(_owner_id(owner), name))


class SandboxService:
    """The operations on the sandbox's configuration, of which there is one."""

    def __init__(self, app: App) -> None:
        self._ports = app.ports

    async def put(self, settings: Mapping[str, Any] | None, config_id: SandboxId | None = None) -> SandboxConfig:
        """The configuration with these settings, made if there is none; with None as it is.

        Raises: NotFound: it has another id than `config_id`; TooMany.
        """
        id_, now = SandboxId(self._ports.ids.new("sandbox")), self._ports.clock.now()

        def put(tx: Tx) -> SandboxConfig:
            before = tx.sandbox.find() if config_id is None else tx.sandbox.get(config_id)
            if settings is None and before is not None:
                return before
            check_item_limits(tx.limits, settings=settings)
            return tx.sandbox.put(SandboxConfig(id=id_, settings=settings or {}, created_at=now, updated_at=now))

        return await self._ports.store.write(put)

    async def find(self) -> SandboxConfig | None:
        """The configuration; None: there is none."""
        return await self._ports.store.read(lambda tx: tx.sandbox.find())

    async def delete(self, config_id: SandboxId) -> None:
        """Delete the configuration with its variables. Raises: NotFound."""
        await self._ports.store.write(lambda tx: tx.sandbox.delete(config_id))

    async def add_variable(self, config_id: SandboxId, name: str, value: str, description: str | None) -> Variable:
        """A new variable of all custom tools, encrypted.

        Raises: InvalidInput, SecretKeyMissing, TooMany; NotFound: there is no such configuration; AlreadyExists: its
            name.
        """
        check_secret(name, value)
        now = self._ports.clock.now()
        bare = Variable(
            id=VariableId(self._ports.ids.new("variable")),
            config_id=config_id,
            name=name,
            sealed=b"",
            description=description,
            created_at=now,
            updated_at=now,
        )

        def add(tx: Tx) -> Variable:
            tx.sandbox.get(config_id)
            variable = seal_variable(tx, bare, value, cipher=self._ports.cipher)
            tx.sandbox.add_variable(variable)
            return variable

        return await self._ports.store.write(add)

    async def update_variable(
        self, variable_id: VariableId, name: str | None, value: str | None, description: str | None
    ) -> Variable:
        """The variable as changed; None leaves a field, and an empty value the stored one.

        Raises: InvalidInput, SecretKeyMissing, NotFound; AlreadyExists: another one has the name.
        """
        now = self._ports.clock.now()

        def update(tx: Tx) -> Variable:
            before = tx.sandbox.get_variable(variable_id)
            after = replace(before, name=name or before.name, updated_at=now)
            if description is not None:
                after = replace(after, description=description)
            check_secret(after.name, value or "")
            if value:
                after = seal_variable(tx, after, value, cipher=self._ports.cipher)
            tx.sandbox.put_variable(after)
            return after

        return await self._ports.store.write(update)

    async def list_variables(self, config_id: SandboxId, page: Page) -> Sequence[Variable]:
        """A page of the variables, oldest first; their values stay encrypted. Raises: NotFound."""

        def read(tx: Tx) -> Sequence[Variable]:
            tx.sandbox.get(config_id)
            variables = sorted(tx.sandbox.list_variables(), key=lambda one: (one.created_at, one.name))
            return page.select(variables, kind="variable", id_of=lambda one: one.id)

        return await self._ports.store.read(read)

    async def delete_variable(self, variable_id: VariableId) -> None:
        """Raises: NotFound."""
        await self._ports.store.write(lambda tx: tx.sandbox.delete_variable(variable_id))


def _owner_id(owner: AgentId | None) -> str:
    return ORGANISATION if owner is None else owner
