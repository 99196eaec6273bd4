"""When a query means: the dates and spans it names, found by patterns against a given clock, without a model."""

from __future__ import annotations

from perdure.search.query.dates.periods import EARLIEST, LATEST
from perdure.search.query.dates.reading import SPANS_MAX, Span, spans

__all__ = ["EARLIEST", "LATEST", "SPANS_MAX", "Span", "spans"]
