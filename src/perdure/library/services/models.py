"""Models: what a handle of a client means here."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.app import App
from perdure.core.ids import AgentId


class ModelService:
    """The operations on the models that this process can reach."""

    def __init__(self, app: App) -> None:
        self._app, self._store = app, app.ports.store

    async def reload(self) -> None:
        """Learn of providers that another process registered. Raises: StoreError."""
        await self._app.providers.load()

    def means_default(self, handle: str | None) -> bool:
        """Whether an agent of a client that names this model follows the default; None: it names none."""
        return handle is None or handle.startswith("letta/") or handle.rpartition("/")[2] == "letta-free"

    async def resolve(self, handle: str | None, agent_id: AgentId | None = None) -> str:
        """The handle here of the model that a client names; None: the default one. A server of local models is asked
        before one is refused.

        Args:
            agent_id: an agent that keeps the model it has, whatever can be reached: clients send back what they were
                shown.
        Raises: ModelNotFound, with the models that there are, and what helps.
        """
        models = self._app.models
        if handle is None or self.means_default(handle):  # older configurations name no provider
            handle = (await self._app.decide() if models.unused_servers else self._app.choice).handle
        handles = self._handles_meant(handle)
        if models.provider_of(handles[0]) is None and "/" in handle:
            await self.reload()
        await models.look_for(handles[0])
        known = models.handles()
        for candidate in handles:
            if candidate in known:
                return candidate
        if agent_id is not None and await self._store.read(lambda tx: tx.agents.model(agent_id)) == handle:
            return handle
        raise models.not_found(handle)

    def _handles_meant(self, handle: str) -> Sequence[str]:
        """The handles here that a client of Letta's server may mean by this one, the likeliest first.

        `openai-proxy/x` is Letta's name of `openai/x` behind a custom address. Agents from there still use it.
        """
        provider, _, name = handle.partition("/")
        match provider:
            case "openai-proxy":
                return (handle, f"openai/{name}")
            case _:
                return (handle,)
