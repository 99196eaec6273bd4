"""What models cost."""

from __future__ import annotations

from perdure.context.request.explain import Prices
from perdure.core.runs import Usage
from perdure.providers.catalog import facts_of
from perdure.providers.registry import ModelRegistry


def prices_of(model: str, models: ModelRegistry) -> Prices:
    """The prices of a model. Raises: InvalidInput: the catalog of PERDURE_CATALOG is wrong."""
    facts = facts_of(models.catalog_handle(model))
    return Prices(
        input=facts.input_price,
        cached_input=facts.cached_price,
        cache_write=facts.cache_write_price,
        output=facts.output_price,
    )


def price_of(models: ModelRegistry, model: str, usage: Usage) -> float | None:
    """The US dollars for this usage of a model; None: unknown."""
    return prices_of(model, models).price(usage)
