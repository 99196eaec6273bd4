"""The setting of an agent that says what the tail of its requests tells it about its own work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from perdure.core.agents import GUARDS, GuardSettings
from perdure.core.errors import InvalidInput
from perdure.domain.values import check_fields, check_range

_MOST = {"stalled_steps": 1_000, "ask_steps": 10_000, "turn_steps": 10_000, "recent_steps": 50}


def check_guards(settings: Mapping[str, Any]) -> None:
    """Check an agent's setting `guards`. Raises: InvalidInput, naming field and value."""
    value = settings.get(GUARDS)
    if value is None or isinstance(value, bool):
        return
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{GUARDS} is {value!r:.80}: give an object with its fields, or false for none")
    check_fields(GUARDS, value, [field.name for field in fields(GuardSettings)])
    guards = GuardSettings(**value)
    check_range(f"{GUARDS}.memory_pressure", guards.memory_pressure, 0, 1, whole=False)
    for name, most in _MOST.items():
        check_range(f"{GUARDS}.{name}", getattr(guards, name), 0, most)
