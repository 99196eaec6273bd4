"""Secrets of an agent or of the organisation: set, listed by name, removed; never read back."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.app import App
from perdure.core.ids import AgentId
from perdure.core.secret_access import put_secret
from perdure.core.secrets import ORGANISATION, Secret, check_secret
from perdure.core.tx import Tx
from perdure.library.checks import check_text

__all__ = ["AsyncSecrets"]


class AsyncSecrets:
    """The secrets of one owner. Their values go to tools that name them, and nowhere else."""

    def __init__(self, app: App, agent_id: AgentId | None = None) -> None:
        self._app, self._owner = app, ORGANISATION if agent_id is None else agent_id

    async def set(self, name: str, value: str) -> Secret:
        """The secret, made or changed, encrypted.

        Args:
            name: letters, digits and `_`, as of an environment variable.
            value: at most 32,768 characters.
        Raises: InvalidInput, SecretKeyMissing, SecretUnreadable; NotFound: the agent is gone; StoreError.
        """
        check_secret(name, value)
        ports = self._app.ports
        return await ports.store.write(put_secret, self._owner, name, value, cipher=ports.cipher, at=ports.clock.now())

    async def list(self) -> Sequence[Secret]:
        """Sorted by name; the values stay encrypted. Raises: NotFound: the agent is gone."""

        def unit(tx: Tx) -> Sequence[Secret]:
            if self._owner != ORGANISATION:
                tx.agents.model(AgentId(self._owner))
            return tx.secrets.list(self._owner)

        return await self._app.store.read(unit)

    async def delete(self, name: str) -> None:
        """Raises: NotFound."""
        check_text("a secret's name", name)
        await self._app.store.write(lambda tx: tx.secrets.delete(self._owner, name))
