"""Dates in queries: the dates and periods that a text names, found by patterns against a clock, without a model."""

from perdure.core.text.dates.calendar import EARLIEST, LATEST
from perdure.core.text.dates.spans import SPANS_MAX, TimeSpan, spans

__all__ = ["EARLIEST", "LATEST", "SPANS_MAX", "TimeSpan", "spans"]
