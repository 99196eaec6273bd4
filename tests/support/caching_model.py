"""A model whose provider keeps a cache: it reports how much of each request it read from it, and how much it wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from perdure.context.sections.assemble import canonical
from perdure.core.messages import Text
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.testing import FakeClock

KEEP = timedelta(hours=1)
CHARS_OF_A_TOKEN = 4


@dataclass
class CachingModel:
    """Answers with `text`. What a request shares with the one before it costs as read, the rest as written."""

    clock: FakeClock
    text: str = "Noted."
    summary: str = "They spoke of the harbour."
    usages: list[Usage] = field(default_factory=list)
    summary_usages: list[Usage] = field(default_factory=list)
    _last: bytes = b""
    _last_at: datetime | None = None

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        whole = len(canonical(request)) // CHARS_OF_A_TOKEN
        if request.purpose != "reply":
            usage = Usage(input_tokens=whole, output_tokens=20)
            self.summary_usages.append(usage)
            yield ModelReply(parts=(Text(self.summary),), usage=usage)
            return
        repeats = canonical(replace(request, tail=""))
        is_cold = self._last_at is None or self.clock.now() - self._last_at > KEEP
        shared = 0 if is_cold else _shared_bytes(repeats, self._last) // CHARS_OF_A_TOKEN
        written = len(repeats) // CHARS_OF_A_TOKEN - shared
        self._last, self._last_at = repeats, self.clock.now()
        usage = Usage(
            input_tokens=whole, output_tokens=len(self.text), cached_input_tokens=shared, cache_write_tokens=written
        )
        self.usages.append(usage)
        yield ModelReply(parts=(Text(self.text),), usage=usage)


def _shared_bytes(one: bytes, other: bytes) -> int:
    """The length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
