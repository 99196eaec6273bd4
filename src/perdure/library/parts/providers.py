"""Providers of models that clients register, and the models of agents. Keys are encrypted, and the models usable at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perdure.app import ALIASES, PROVIDERS, Endpoint, endpoint_of, list_models, place_provider
from perdure.core.errors import AddressRefused, AlreadyExists, InvalidInput, ModelError
from perdure.core.ids import AgentId, ProviderId
from perdure.core.models import (
    EXTRACTIVE,
    ModelProvider,
    ProviderFilter,
    check_provider,
    seal_provider,
    unseal_provider,
)
from perdure.core.secrets import HIDDEN_QUERY
from perdure.library.parts.checks import Page, check_page
from perdure.library.parts.part import AsyncPart
from perdure.storage.tx import Tx


class ModelHandles(AsyncPart):
    """The operations on the models that this process can reach."""

    async def reload(self) -> None:
        """Learn of providers that another process registered. Raises: StoreError."""
        await self._app.providers.load()

    def means_default(self, handle: str | None) -> bool:
        """Whether an agent of a client that names this model follows the default; None: it names none."""
        return handle is None or handle.startswith("letta/") or handle.rpartition("/")[2] == "letta-free"

    async def resolve(self, handle: str | None, agent_id: AgentId | None = None) -> str:
        """The handle here of a client's model name; None: the default. Local servers are asked before refusing.

        Args:
            agent_id: an agent that keeps the model it has, whatever can be reached: clients send back what they were
                shown.
        Raises: ModelNotFound, with the models that there are, and what helps.
        """
        models = self._app.models
        if handle is None or self.means_default(handle):  # older configurations name no provider
            handle = (await self._app.decide()).handle
        provider, _, name = handle.partition("/")
        # `openai-proxy/x` is Letta's name of `openai/x` behind a custom address. Agents from there still use it.
        handles = (handle, f"openai/{name}") if provider == "openai-proxy" else (handle,)
        if models.provider_of(handles[0]) is None and "/" in handle:
            await self.reload()
        await models.look_for(handles[0])
        for candidate in handles:
            if models.takes(candidate):
                return candidate
        if agent_id is not None and await self._ports.store.read(lambda tx: tx.agents.model(agent_id)) == handle:
            return handle
        raise models.not_found(handle)


RESERVED = frozenset({*PROVIDERS, *ALIASES, "letta", "perdure", "local"})
"""Names that handles of other models begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFields:
    """Values of a provider. In a change, None leaves what there is; an empty key leaves the stored one."""

    name: str | None = None
    provider_type: str | None = None
    api_key: str | None = None
    base_url: str | None = None
    region: str | None = None
    api_version: str | None = None


class AllProviders(AsyncPart):
    """The operations on registered providers.

    `private`: whether the address may be on this machine or in a private network.
    """

    async def create(self, fields: ProviderFields, *, private: bool) -> ModelProvider:
        """A new provider; it is asked for its models, and stays if it does not answer.

        Raises: InvalidInput, AlreadyExists, AddressRefused, SecretKeyMissing.
        """
        provider = self._provider(fields)
        if provider.name in RESERVED:
            raise AlreadyExists("provider", provider.name)
        provider = await self._placed(provider, fields.api_key or "", private=private)
        provider = seal_provider(provider, fields.api_key or "", self._ports.cipher)
        provider = await self._ports.store.write(lambda tx: tx.providers.add(provider))
        return await self._sync(provider)

    async def list(self, where: ProviderFilter, page: Page) -> Sequence[ModelProvider]:
        """A page of providers. Raises: InvalidInput, NotFound."""
        check_page(page)
        return await self._ports.store.read(lambda tx: tx.providers.page(where=where, **page.arguments))

    async def get(self, provider_id: ProviderId) -> ModelProvider:
        """The provider with this id. Raises: NotFound."""
        return await self._ports.store.read(lambda tx: tx.providers.get(provider_id))

    async def update(self, provider_id: ProviderId, fields: ProviderFields, *, private: bool) -> ModelProvider:
        """The provider with these values. Its name stays, because handles of models begin with it.

        Raises: NotFound, InvalidInput, AddressRefused, SecretKeyMissing.
        """
        while (changed := await self._try_update(provider_id, fields, private=private)) is None:
            pass  # others have changed it while its address was looked at
        return await self._sync(changed)

    async def _try_update(
        self, provider_id: ProviderId, fields: ProviderFields, *, private: bool
    ) -> ModelProvider | None:
        """The provider with these values, as stored; None: it was changed meanwhile, and nothing was stored."""
        before = await self.get(provider_id)
        if fields.name not in (None, before.name):
            raise InvalidInput(f"name: a provider keeps its name, {before.name}, which handles of models begin with")
        changed = self._provider(fields, before)
        cipher = self._ports.cipher
        old = endpoint_of(before, cipher, "")
        if fields.base_url is not None or self._endpoint(changed, fields.api_key or "").base_url != old.base_url:
            changed = await self._placed(changed, fields.api_key or "", private=private)
        if fields.api_key or changed.base_url != before.shown_url:
            is_kept = changed.base_url.endswith(HIDDEN_QUERY)
            key, url = unseal_provider(before, cipher) if is_kept or not fields.api_key else ("", "")
            whole = replace(changed, base_url=url) if is_kept else changed
            changed = seal_provider(whole, fields.api_key or key, cipher)

        def put(tx: Tx) -> ModelProvider | None:
            """Store the changed provider; None: it has changed meanwhile."""
            if tx.providers.get(provider_id) != before:
                return None
            tx.providers.put(changed)
            return changed

        return await self._ports.store.write(put)

    async def delete(self, provider_id: ProviderId) -> None:
        """Remove a provider with its key. Agents keep the handles of its models, which can't be asked any more.

        Raises: NotFound.
        """
        await self._ports.store.write(lambda tx: tx.providers.delete(provider_id))
        await self._app.providers.load()

    async def check(self, fields: ProviderFields, *, private: bool) -> int:
        """How many models a provider with these values lists. Nothing is stored.

        Raises: InvalidInput, AddressRefused; ModelError: it refuses the key, or does not answer.
        """
        provider = self._provider(replace(fields, name=fields.name or "unnamed"))
        provider = await self._placed(provider, fields.api_key or "", private=private)
        return await self._ask(provider, fields.api_key or "")

    async def check_stored(self, provider_id: ProviderId) -> int:
        """How many models a provider lists. Raises: NotFound; InvalidInput, ModelError, as `check`."""
        return await self._ask(await self.get(provider_id), None)

    async def refresh(self, provider_id: ProviderId) -> ModelProvider:
        """The provider, whose models were listed anew. Raises: NotFound; ModelError: it did not list them."""
        return await self._sync(await self.get(provider_id), strict=True)

    def _provider(self, fields: ProviderFields, before: ModelProvider | None = None) -> ModelProvider:
        """The provider `before`, or a new one, with these values but for the key, not stored. Raises: InvalidInput."""
        now = self._ports.clock.now()
        if before is None:
            before = ModelProvider(
                id=ProviderId(self._ports.ids.new("provider")),
                org_id=self._app.org_id,
                name=fields.name or "",
                provider_type=fields.provider_type or "openai",
                created_at=now,
                updated_at=now,
            )
        values = {
            name: value
            for name in ("provider_type", "base_url", "region", "api_version")
            if (value := getattr(fields, name)) is not None
        }
        if values.get("base_url") == before.shown_url:  # as it is shown: its query stays
            del values["base_url"]
        if values.get("base_url", "").endswith(HIDDEN_QUERY):
            raise InvalidInput(f"base_url ends with {HIDDEN_QUERY}, as it is shown: write its query out")
        provider = replace(before, **values, updated_at=now)
        check_provider(provider, fields.api_key)
        return provider

    def _endpoint(self, provider: ModelProvider, api_key: str | None) -> Endpoint:
        """The address and key of a provider; with None as key the stored one. Raises: InvalidInput."""
        endpoint = endpoint_of(provider, self._ports.cipher, api_key)
        if endpoint.problem:
            raise InvalidInput(endpoint.problem)
        return endpoint

    async def _placed(self, provider: ModelProvider, api_key: str | None, *, private: bool) -> ModelProvider:
        """The provider, with `private` as what its address turns out to be; the argument says whether it may be
        private. Raises: InvalidInput: no usable address or key; AddressRefused."""
        endpoint = self._endpoint(provider, api_key)
        if endpoint.guard is None:
            return replace(provider, private=False)
        try:
            guard = await place_provider(endpoint.base_url, private=private)
        except AddressRefused as error:
            helps = "" if private else "; PERDURE_MCP_PRIVATE=on lets clients of the API name private addresses"
            raise AddressRefused(endpoint.address, f"{error.reason}{helps}") from error
        return replace(provider, private=guard.private)

    async def _ask(self, provider: ModelProvider, api_key: str | None) -> int:
        """How many models a provider lists; with None as key by the stored one. Raises: InvalidInput, ModelError."""
        listing = await list_models(self._endpoint(provider, api_key))
        if listing.problem:
            raise _model_error(listing.problem, listing.status)
        return len(listing.models)

    async def _sync(self, provider: ModelProvider, *, strict: bool = False) -> ModelProvider:
        """Load the registered providers and ask this one for its models; return it, with the time if it answered.

        Raises: ModelError: it did not answer, and `strict` says that this is an error.
        """
        await self._app.providers.load()
        listing = await self._app.models.load_listing(provider.name)
        if self._app.choice.handle == EXTRACTIVE:
            await self._app.choose()
        if listing.problem and strict:
            raise _model_error(listing.problem, listing.status)
        if listing.problem:
            return provider
        synced_at: datetime = self._ports.clock.now()

        def store(tx: Tx) -> ModelProvider:
            """Note when the models were listed."""
            synced = replace(tx.providers.get(provider.id), synced_at=synced_at)
            tx.providers.put(synced)
            return synced

        return await self._ports.store.write(store)


def _model_error(problem: str, status: int) -> ModelError:
    """The error for a provider that answered a request with this status of HTTP."""
    kind = "llm_authentication" if status in (401, 403) else "llm_bad_request"
    return ModelError(problem, kind=kind)
