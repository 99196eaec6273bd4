"""The models of an engine."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.core.features import find_features
from perdure.core.models import Model
from perdure.providers.choosing import OwnModels
from perdure.providers.discovery import Listing, find_providers
from perdure.providers.registry import ModelRegistry
from perdure.settings import Settings


def own_models(settings: Settings) -> OwnModels | None:
    """The models that this process serves itself, of the feature that serves some; None: there is none."""
    makers = [feature.load(feature.models) for feature in find_features() if feature.models]
    return makers[0](settings) if makers else None


def model_registry(
    models: Mapping[str, Model] | None = None,
    *,
    listings: dict[str, Listing] | None = None,
    own: OwnModels | None = None,
) -> ModelRegistry:
    """The models available here: those given, the built-in one, those of the environment, and of this process."""
    return ModelRegistry(models, endpoints=find_providers(), listings=listings, own=own)
