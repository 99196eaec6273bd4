"""Plain values in exports: times, ids, texts, objects and lists, whatever stands in their place."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.domain.conversations.importing import KEY_MAX_CHARS

_SECONDS_MAX = 1e11
"""A larger number is a time in milliseconds or less, for in seconds it would be in the year 5138."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def time_of(value: Any) -> datetime | None:
    """Return a time in UTC, given as seconds, milliseconds or smaller units since 1970 (also as text), or as ISO 8601,
    in which UTC is the default zone; None: it is none of these."""
    try:
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            seconds = float(value)
            while _SECONDS_MAX < seconds < 1e21:
                seconds /= 1000
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds) if seconds > 0 else None
        if isinstance(value, str):
            found = datetime.fromisoformat(value.strip().replace(" UTC", "+00:00"))
            return found.replace(tzinfo=UTC) if found.utcoffset() is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    return None


def key_of(value: Any) -> str:
    """Return an id of the source as the part of an id here: any value, of bounded length."""
    text = str(value)
    return text if 0 < len(text) <= KEY_MAX_CHARS else f"{text[:100]}…{hash_of(text)}"


def hash_of(*texts: str) -> str:
    """Return a short digest of texts."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def text_in(value: Any) -> str:
    """Return a text without white space around it; empty if it is none."""
    return value.strip() if isinstance(value, str) else ""


def object_in(value: Any) -> Mapping[str, Any]:
    """Return an object of JSON; of another value an empty one."""
    return value if isinstance(value, dict) else {}


def list_in(value: Any) -> Sequence[Any]:
    """Return a list of JSON; of another value an empty one."""
    return value if isinstance(value, list) else []


def join_all(texts: Iterable[str]) -> str:
    """Return the texts that are not empty, a paragraph each."""
    return "\n\n".join(filter(None, texts))
