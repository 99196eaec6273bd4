"""The models of an engine."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.core.features import find_features
from perdure.core.models import Model
from perdure.providers.choosing import ServedModels
from perdure.providers.discovery import ModelListing, find_providers
from perdure.providers.registry import ModelRegistry
from perdure.settings import Settings


def own_models(settings: Settings) -> ServedModels | None:
    """Return the models that this process serves itself, by the first feature that has some; None: none has."""
    makers = [feature.load(feature.models) for feature in find_features() if feature.models]
    return makers[0](settings) if makers else None


def model_registry(
    models: Mapping[str, Model] | None = None,
    *,
    listings: dict[str, ModelListing] | None = None,
    own: ServedModels | None = None,
) -> ModelRegistry:
    """Return the models available here: `models` by handle, the built-in one, those of providers in the environment,
    and `own`, which this process serves. `listings`: what is known of the providers' models; it grows."""
    return ModelRegistry(models, endpoints=find_providers(), listings=listings, own=own)
