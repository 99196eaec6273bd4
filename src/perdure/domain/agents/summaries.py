"""The setting of an agent that says how summaries are prepared in the background."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from perdure.core.conversations import SUMMARIES, SummarySettings
from perdure.core.errors import InvalidInput
from perdure.domain.values import check_fields, check_range

_RANGES = {
    "fresh_tail_messages": (1, 10_000),
    "leaf_min_fanout": (1, 1_000),
    "leaf_chunk_tokens": (500, 200_000),
    "leaf_target_tokens": (80, 20_000),
    "condensed_min_fanout": (2, 20),
    "condensed_target_tokens": (80, 20_000),
}


def check_summaries(settings: Mapping[str, Any]) -> None:
    """Check an agent's setting `summaries`. Raises: InvalidInput, naming field and value."""
    value = settings.get(SUMMARIES)
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{SUMMARIES} is {value!r:.80}: give an object with its fields")
    check_fields(SUMMARIES, value, [field.name for field in fields(SummarySettings)])
    summaries = SummarySettings(**value)
    if summaries.author not in ("model", "code"):
        raise InvalidInput(f"{SUMMARIES}.author is {summaries.author!r:.80}: give model or code")
    if not isinstance(summaries.background, bool):
        raise InvalidInput(f"{SUMMARIES}.background is {summaries.background!r:.80}: give true or false")
    check_range(f"{SUMMARIES}.context_threshold", summaries.context_threshold, 0.1, 1, whole=False)
    for name, (least, most) in _RANGES.items():
        check_range(f"{SUMMARIES}.{name}", getattr(summaries, name), least, most)
    if summaries.fresh_tail_tokens is not None:
        check_range(f"{SUMMARIES}.fresh_tail_tokens", summaries.fresh_tail_tokens, 0, 1_000_000)
