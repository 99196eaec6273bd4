"""The setting `limits` of an agent: what it may use in a minute, a day and a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.core.access.values import Limits, limits_of

LIMITS = "limits"
_NONE = Limits()


def limits_in(settings: Mapping[str, Any]) -> Limits:
    """Return the limits in an agent's settings."""
    value = settings.get(LIMITS)
    return limits_of(value) if value else _NONE


def check_limits(settings: Mapping[str, Any]) -> None:
    """Check an agent's setting `limits`. Raises: InvalidInput, naming field and value."""
    if (value := settings.get(LIMITS)) is not None:
        limits_of(value)
