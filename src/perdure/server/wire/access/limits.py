"""The limits of keys and agents on the wire."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from perdure.core.access.values import LIMIT_MAX, Limits
from perdure.server.wire.base import WireRequest

_Count = Annotated[int, Field(ge=1, lt=LIMIT_MAX)]
Dollars = Annotated[float, Field(gt=0, lt=LIMIT_MAX)]


class LimitsIn(WireRequest):
    """What a key or an agent may use; a field that is missing or null is no limit. Days and minutes are those of UTC,
    costs are in US dollars, of models with a known price."""

    # A misspelt limit must not become none.
    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: _Count | None = None
    message_chars: _Count | None = None
    tokens_per_day: _Count | None = None
    cost_per_day: Dollars | None = None
    tokens_per_run: _Count | None = None
    cost_per_run: Dollars | None = None

    @property
    def limits(self) -> Limits:
        """The values, as the library takes them."""
        return Limits(**self.model_dump())
