"""The models of an engine, and what derives facts from what was said."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from perdure.core.facts.extraction import Extractor, FindExtractor
from perdure.core.features import find_features
from perdure.core.models import EXTRACTIVE, Model
from perdure.core.telemetry.port import Telemetry
from perdure.engine.facts.model_extractor import ModelExtractor
from perdure.engine.ports import extract_nothing
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
    environment: Mapping[str, str] | None = None,
    listings: dict[str, Listing] | None = None,
    own: OwnModels | None = None,
) -> ModelRegistry:
    """The models available here: those given, the built-in one, those of the environment, and of this process."""
    return ModelRegistry(models, endpoints=find_providers(environment), listings=listings, own=own)


def extractors_of(settings: Settings, registry: ModelRegistry, telemetry: Telemetry) -> FindExtractor:
    """Return what finds the extractor of an agent."""
    if settings.facts == "off":
        return extract_nothing
    return functools.partial(_find_extractor, settings, registry, telemetry)


def _find_extractor(
    settings: Settings, registry: ModelRegistry, telemetry: Telemetry, setting: str, agent_model: str
) -> Extractor:
    """Return what derives facts from what was said. Raises: ModelNotFound."""
    handle = settings.facts_model or agent_model
    by_patterns = setting == "patterns" or (setting == "default" and settings.facts == "patterns")
    if by_patterns or settings.background == "never" or handle in ("", EXTRACTIVE):
        from perdure.providers.extractive.extractor import PatternExtractor  # its patterns take a tenth of a second

        return PatternExtractor()
    if (model := registry.find(handle)) is None:
        raise registry.not_found(handle)
    return ModelExtractor(model, handle, telemetry)
