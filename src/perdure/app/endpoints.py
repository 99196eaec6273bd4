"""What the store knows of models: the providers that clients registered, and what was learned of models."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

from perdure.core.errors import InvalidInput, SecretKeyMissing, SecretUnreadable, StoreError
from perdure.core.models import EXTRACTIVE, ModelProvider, unseal_provider
from perdure.core.secrets import HIDDEN_QUERY, Cipher
from perdure.domain.rotation import seal_queries
from perdure.engine.process import LOOK_S, TopicSignals
from perdure.engine.workers.worker import Worker
from perdure.providers.choosing import DefaultModel
from perdure.providers.discovery import endpoint_of_type
from perdure.providers.provider import Endpoint
from perdure.providers.registry import ModelRegistry
from perdure.providers.traits import LearnedTraits
from perdure.storage.store import Store
from perdure.storage.tx import Tx
from perdure.toolbox.builtin.provider_guard import ProviderGuard

log = logging.getLogger(__name__)


class StoredProviders(Worker):
    """Keeps the models of a process at the providers that clients of any process have registered. `model`: the default
    model of the settings, or nothing."""

    def __init__(
        self, store: Store, cipher: Cipher, registry: ModelRegistry, signals: TopicSignals, *, model: str
    ) -> None:
        super().__init__("loading changed providers", self.load, LOOK_S)
        self._store, self._cipher, self._registry, self._model = store, cipher, registry, model
        self._known: dict[ModelProvider, Endpoint] | None = None
        self._own_choice: DefaultModel | None = None
        self._loading = asyncio.Lock()
        signals.on("providers", self.wake)

    async def start(self) -> None:
        """Load the providers now, and from then on at each signal of a change and every `LOOK_S` seconds: SQLite has no
        signals between processes, and one may be lost. Raises: StoreError."""
        await self.load()
        await super().start()

    async def load(self) -> None:
        """Make the models of the providers usable as the store has them now. Raises: StoreError."""
        async with self._loading:  # what was read last is put last
            stored = await self._store.read(lambda tx: tx.providers.list())
            with contextlib.suppress(SecretKeyMissing):
                if any(provider.base_url != provider.shown_url for provider in stored):
                    stored = await self._store.write(seal_queries, cipher=self._cipher)
            endpoints = {_without_seal(provider): self._endpoint(provider) for provider in stored}
            registry = self._registry
            own_choice = registry.own_choice
            if (endpoints, own_choice) == (self._known, self._own_choice):
                return
            self._known, self._own_choice = endpoints, own_choice
            registry.put_stored(list(endpoints.values()))
            is_lost = registry.choice.handle == EXTRACTIVE or registry.find(registry.choice.handle) is None
            if is_lost or (own_choice is not None and own_choice.is_setting):
                registry.choice = registry.first_choice(self._model)
                registry.has_chosen = registry.choice.is_setting

    def _endpoint(self, provider: ModelProvider) -> Endpoint:
        """Return the address and key of a provider. If its key can't be decrypted, because another process encrypted it
        with a key unknown here, return the address and key that were loaded last."""
        endpoint = endpoint_of(provider, self._cipher)
        return (self._known or {}).get(_without_seal(provider), endpoint) if endpoint.problem else endpoint


def _without_seal(provider: ModelProvider) -> ModelProvider:
    """Return the provider without fields that change when nobody changes its address or key."""
    return replace(provider, sealed=b"", synced_at=None)


def endpoint_of(provider: ModelProvider, cipher: Cipher, api_key: str | None = None) -> Endpoint:
    """Return address and key (`api_key` or the stored one) of a provider; `problem` in it says why they are no use."""
    try:
        key, url = api_key, provider.base_url
        if key is None or url.endswith(HIDDEN_QUERY):
            stored, url = unseal_provider(provider, cipher)
            key = stored if key is None else key
        return endpoint_of_type(
            provider.name,
            provider.provider_type,
            base_url=url,
            api_key=key,
            guard=ProviderGuard(private=provider.private),
        )
    except (InvalidInput, SecretKeyMissing, SecretUnreadable) as error:
        return Endpoint(provider=provider.name, base_url="", problem=str(error), like="openai")


class StoredTraits:
    """Keeps what a process has learned of models in the store."""

    def __init__(self, store: Store, learned: LearnedTraits) -> None:
        self._store, self._learned = store, learned
        self._changed: set[str] = set()
        self._storing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load what was learned before. Raises: StoreError."""
        self._learned.put_stored(await self._store.read(lambda tx: tx.providers.list_traits()))
        self._learned.on_change = self._change

    async def close(self) -> None:
        """Store what is not stored yet."""
        self._learned.on_change = lambda handle: None
        if self._storing is not None:
            await self._storing

    def _change(self, handle: str) -> None:
        """Store the traits of a model soon, together with others that change meanwhile."""
        self._changed.add(handle)
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store_changed())

    async def _store_changed(self) -> None:
        """Store the traits of changed models until none is left; an error of the store is logged, and they are lost."""
        while self._changed:
            changed, self._changed = self._changed, set()
            traits = {handle: self._learned.stored(handle) for handle in sorted(changed)}

            def store(tx: Tx, traits: dict[str, dict[str, object]] = traits) -> None:
                """Store name of a trait -> value, by the handle of the model."""
                for handle, known in traits.items():
                    tx.providers.put_traits(handle, known)

            try:
                await self._store.write(store)
            except StoreError as error:
                log.warning("what was learned of %s is not kept: %s", ", ".join(traits), error)
