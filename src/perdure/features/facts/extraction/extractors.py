"""What derives facts from what was said: patterns, or a model; and what their callers need of the world."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial

from perdure.app import App
from perdure.core.models import EXTRACTIVE
from perdure.engine.ports import Ports
from perdure.features.facts.extraction.model_extractor import ModelExtractor
from perdure.features.facts.extraction.waiting import ConversationBacklogs
from perdure.features.facts.values.extraction import Extractor, FindExtractor


def extract_nothing(setting: str, model: str) -> Extractor | None:
    """Return no extractor: facts are off. It is a `FindExtractor`."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPorts(Ports):
    """What extraction needs beside the engine's ports: an extractor, and the conversations that wait."""

    find_extractor: FindExtractor = extract_nothing
    waiting: ConversationBacklogs = field(default_factory=ConversationBacklogs)

    @classmethod
    def of(cls, app: App) -> FactPorts:
        """Return the ports of a running engine, with the extractors that its settings choose."""
        shared = {field.name: getattr(app.ports, field.name) for field in fields(Ports)}
        finds = extract_nothing if app.settings.facts == "off" else partial(_find_extractor, app)
        return cls(**shared, find_extractor=finds)


def _find_extractor(app: App, setting: str, agent_model: str) -> Extractor:
    """Return the extractor that an agent's setting chooses, with the agent's model. Raises: ModelNotFound."""
    settings = app.settings
    handle = settings.facts_model or agent_model
    by_patterns = setting == "patterns" or (setting == "default" and settings.facts == "patterns")
    if by_patterns or settings.background == "never" or handle in ("", EXTRACTIVE):
        from perdure.features.facts.extraction.patterns import PatternExtractor  # not sooner: its patterns are many

        return PatternExtractor()
    if (model := app.models.find(handle)) is None:
        raise app.models.not_found(handle)
    return ModelExtractor(model, handle, app.telemetry)
