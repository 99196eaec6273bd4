"""Secrets of an agent or of the organisation: set, listed by name, removed; never read back."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.ids import AgentId
from perdure.core.secrets import Secret
from perdure.library.services import Services


class AsyncSecrets:
    """The secrets of one owner. Their values go to tools that name them, and nowhere else."""

    def __init__(self, services: Services, agent_id: AgentId | None = None) -> None:
        self._service, self._agent_id = services.secrets, agent_id

    async def set(self, name: str, value: str) -> Secret:
        """The secret, made or changed, encrypted.

        Args:
            name: letters, digits and `_`, as of an environment variable.
            value: at most 32,768 characters.
        Raises: InvalidInput, SecretKeyMissing, SecretUnreadable; NotFound: the agent is gone; StoreError.
        """
        return await self._service.set(self._agent_id, name, value)

    async def list(self) -> Sequence[Secret]:
        """Sorted by name; the values stay encrypted. Raises: NotFound: the agent is gone."""
        return await self._service.list(self._agent_id)

    async def delete(self, name: str) -> None:
        """Raises: NotFound."""
        await self._service.delete(self._agent_id, name)
