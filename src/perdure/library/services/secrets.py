"""Secrets of an agent or of the organisation. Their values go to tools that name them, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.app import App
from perdure.core.ids import AgentId
from perdure.core.secrets import ORGANISATION, Secret, check_secret
from perdure.domain.secrets import put_secret
from perdure.library.checks import check_text
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


def _owner_id(owner: AgentId | None) -> str:
    return ORGANISATION if owner is None else owner
