"""Who derives facts from what was said: patterns or a model, as settings and agents say."""

from __future__ import annotations

import functools

from perdure.core.facts.extraction import Extractor, FindExtractor
from perdure.core.models import EXTRACTIVE
from perdure.core.telemetry.port import Telemetry
from perdure.engine.facts.model_extractor import ModelExtractor
from perdure.engine.ports import extract_nothing
from perdure.providers.extractive.extractor import PatternExtractor
from perdure.providers.registry import ModelRegistry
from perdure.settings import Settings


def extractors_of(settings: Settings, registry: ModelRegistry, telemetry: Telemetry) -> FindExtractor:
    """Return what finds the extractor of an agent."""
    return (
        extract_nothing
        if settings.facts == "off"
        else functools.partial(_find_extractor, settings, registry, telemetry)
    )


def _find_extractor(
    settings: Settings, registry: ModelRegistry, telemetry: Telemetry, setting: str, agent_model: str
) -> Extractor:
    """Return what derives facts from what was said. Raises: ModelNotFound."""
    handle = settings.facts_model or agent_model
    by_patterns = setting == "patterns" or (setting == "default" and settings.facts == "patterns")
    if by_patterns or settings.background == "never" or handle in ("", EXTRACTIVE):
        return PatternExtractor()
    if (model := registry.find(handle)) is None:
        raise registry.not_found(handle)
    return ModelExtractor(model, handle, telemetry)
