"""The setting of an agent that names its context engine, with the engine's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.domain.values import check_fields

CONTEXT_ENGINE = "context_engine"
DEFAULT_ENGINE = "paged"
NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The name of a context engine, and its options."""

    name: str = DEFAULT_ENGINE
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: Any, where: str = CONTEXT_ENGINE) -> EngineChoice:
        """Return the choice that a name, or an object with name and options, stands for. Raises: InvalidInput."""
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise InvalidInput(f'{where} is {value!r:.80}: give a name, or {{"name": ..., "options": {{...}}}}')
        check_fields(where, value, ("name", "options"))
        name, options = value.get("name"), value.get("options") or {}
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS:
            raise InvalidInput(f"{where}.name is {name!r:.80}: give the name of an engine")
        if not isinstance(options, Mapping) or not all(isinstance(one, str) for one in options):
            raise InvalidInput(f"{where}.options is {options!r:.80}: give an object with the engine's options")
        return cls(name, dict(options))


def engine_choice(settings: Mapping[str, Any]) -> EngineChoice | None:
    """Return the engine that an agent's settings choose; None: the default one. Raises: InvalidInput."""
    value = settings.get(CONTEXT_ENGINE)
    return None if value is None else EngineChoice.parse(value)
