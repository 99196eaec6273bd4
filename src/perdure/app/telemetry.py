"""What listeners of the engine are called with, the names and prices of models, and the listeners every program has.

What is imported here `as` itself is for the server, which doesn't import adapters.
"""

from __future__ import annotations

import time
from contextlib import suppress

from perdure.context.request.explain import Prices
from perdure.core.errors import InvalidInput
from perdure.core.models import EXTRACTIVE
from perdure.core.runs import Usage
from perdure.providers.catalog import facts_of
from perdure.providers.provider import PROVIDERS
from perdure.providers.registry import ModelRegistry
from perdure.settings import Settings
from perdure.telemetry.listeners import SHARED_FOLDER as SHARED_FOLDER
from perdure.telemetry.listeners import Listeners
from perdure.telemetry.listeners import forget_process as forget_process
from perdure.telemetry.spans import Spans
from perdure.telemetry.spans import client_trace as client_trace
from perdure.telemetry.spans import exported_spans as exported_spans


def prices_of(model: str, models: ModelRegistry) -> Prices:
    """Return the prices of the model with the handle `model`. Raises: InvalidInput: PERDURE_CATALOG is wrong."""
    facts = facts_of(models.catalog_handle(model))
    return Prices(
        input=facts.input_price,
        cached_input=facts.cached_price,
        cache_write=facts.cache_write_price,
        output=facts.output_price,
    )


PRICES_S = 60.0
"""How long prices are kept: finding those of a model takes longer than all the rest of what is reported of a call."""


class RegistryNames:
    """`ModelNames` of a registry's models."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry
        self._prices: dict[str, Prices] = {}
        self._read_at = 0.0

    def provider(self, handle: str) -> str:
        """The kind of the provider of the model with this handle; see `ModelNames`."""
        if handle == EXTRACTIVE:
            return "perdure"
        if (found := self._registry.provider_of(handle)) is not None:
            return found[0].entry.name
        return "own" if handle in self._registry.own_handles else "unknown"

    def label(self, handle: str) -> str:
        """The handle, or another name of the model that no user has chosen; see `ModelNames`."""
        if handle in self._registry.own_handles:
            return handle
        if self._registry.provider_of(handle) is None:
            return "other"
        if self._registry.stored_as(handle) is None:  # the operator's own
            return handle
        known = self._registry.catalog_handle(handle)
        return known if facts_of(known).known else "other"

    def price(self, handle: str, usage: Usage) -> float | None:
        """The US dollars for this usage; None: unknown."""
        if time.monotonic() - self._read_at > PRICES_S:
            self._prices, self._read_at = {}, time.monotonic()
        if handle not in self._prices:
            self._prices[handle] = Prices()
            with suppress(InvalidInput):  # of the operator's own catalog; who looks at prices is told
                self._prices[handle] = prices_of(handle, self._registry)
        return self._prices[handle].price(usage)


def listeners_of(settings: Settings, registry: ModelRegistry) -> Listeners:
    """Return the listeners of an engine, to which more can be added."""
    providers = {provider.name: provider.trace_name for provider in PROVIDERS.values()}
    return Listeners(Spans(RegistryNames(registry), providers=providers, content=settings.trace_content == "on"))
