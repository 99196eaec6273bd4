"""How values are shown on pages: times, amounts, ids and differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from perdure.core.text.line_diff import diff_lines
from perdure.core.text.reprs import plural

_UNITS = ((365 * 86_400, "y"), (30 * 86_400, "mo"), (7 * 86_400, "w"), (86_400, "d"), (3_600, "h"), (60, "min"))
ID_CHARS = 8


def ago(moment: datetime | str | None) -> str:
    """How long ago a time was, in its largest unit."""
    if moment is None:
        return "never"
    seconds = (datetime.now(UTC) - _time(moment)).total_seconds()
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def _time(moment: datetime | str) -> datetime:
    return datetime.fromisoformat(moment) if isinstance(moment, str) else moment


def iso(moment: datetime | str) -> str:
    """A time in full, in UTC."""
    return _time(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def date_of(moment: datetime | None) -> str:
    """The day of a time in UTC, as the field of a form has it; empty without one."""
    return "" if moment is None else moment.astimezone(UTC).date().isoformat()


def day(moment: datetime) -> str:
    """The day of a time in UTC, for people."""
    return f"{moment.astimezone(UTC):%-d %b %Y}"


def number(value: float | None) -> str:
    """A whole number with thousands separated; an unknown one is a dash."""
    return "–" if value is None else f"{value:,.0f}"


def dollars(value: float | None) -> str:
    """A price in US dollars; an unknown one is a dash."""
    if value is None:
        return "–"
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def percent(part: float, whole: float) -> str:
    """A share, with one decimal."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def short(identifier: str) -> str:
    """The beginning of an id, which is enough to recognise it."""
    kind, _, rest = identifier.partition("-")
    return f"{kind}-{rest[:ID_CHARS]}"


def diff_rows(diff: str) -> Sequence[Mapping[str, str]]:
    """The lines of a difference: each with its `kind` (`add`, `del`, `at`, `same`) and `text`."""
    kinds = {"+": "add", "-": "del", "…": "at", " ": "same"}
    lines = diff_lines(diff) if diff else ()
    return [{"kind": kinds[mark], "text": f"{mark}{' ' if mark == '…' else ''}{text}"} for mark, text in lines]


def author(kind: str) -> str:
    """Who wrote something, in words."""
    return {"user": "a person", "agent": "the agent", "system": "Perdure", "file": "a file"}.get(kind, kind)


def pretty(value: Any) -> str:
    """JSON for people; a text that is JSON is parsed first."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "ago": ago,
    "iso": iso,
    "date_of": date_of,
    "day": day,
    "number": number,
    "plural": plural,
    "dollars": dollars,
    "percent": percent,
    "short": short,
    "author": author,
    "diff_rows": diff_rows,
    "pretty": pretty,
}
