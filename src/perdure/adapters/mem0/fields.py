"""What callers give, as facts need it: whose a memory is, its metadata, messages, times."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from perdure import Fact, InvalidInput
from perdure.library.parts.checks import name_form

IDS = ("user_id", "agent_id", "run_id")
METADATA = "metadata"
"""The name in a fact's scope under which its metadata stand, as JSON."""

_COMPARES: Mapping[str, Callable[[Any, Any], Any]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, allowed: value in allowed,
    "nin": lambda value, excluded: value not in excluded,
    "contains": lambda value, part: part in value,
    "icontains": lambda value, part: str(part).lower() in str(value).lower(),
    "eq": operator.eq,
    "ne": operator.ne,
}
_WITHOUT_VALUE = frozenset({"eq", "ne", "nin"})
"""Operators that a field without a value may meet."""


def scope_of(ids: Mapping[str, Any]) -> dict[str, str]:
    """Return those of `ids` (`user_id`, `agent_id`, `run_id`) that are not None, as a fact's scope. Raises: ValueError:
    an empty id, or one with spaces."""
    scope = {name: str(value).strip() for name, value in ids.items() if value is not None}
    for name, value in scope.items():
        if not value or any(character.isspace() for character in value):
            raise ValueError(f"{name} is {ids[name]!r:.80}: give an id without spaces")
    return scope


def split_filters(
    filters: Mapping[str, Any] | None, ids: Mapping[str, Any]
) -> tuple[Mapping[str, str], Mapping[str, Any]]:
    """Return (the ids of the user, agent or run whose memories are meant, the other filters). `ids`: older arguments.
    Raises: ValueError: no id at all; TypeError: an unknown argument."""
    if unknown := set(ids) - set(IDS):
        raise TypeError(f"unexpected argument {sorted(unknown)[0]!r}")
    both = name_form({**(filters or {}), **{name: value for name, value in ids.items() if value is not None}})
    if not set(both) & set(IDS):
        raise ValueError("nothing says whose memories: give filters such as {'user_id': 'ada'}")
    own = {name: both[name] for name in IDS if name in both}  # "*", operators and lists are conditions, no ids
    exact = {name: value for name, value in own.items() if value != "*" and not isinstance(value, Mapping | list)}
    return scope_of(exact), {name: value for name, value in both.items() if name not in exact}


def metadata_text(metadata: Mapping[str, Any]) -> str:
    """Return metadata as a fact's scope holds them. Raises: InvalidInput."""
    try:
        return json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata is {metadata!r:.80} ({error!s:.80}): give names with JSON values") from None


def as_messages(messages: Any) -> Sequence[Mapping[str, Any]]:
    """Return the messages that have a `role` and a text, with the text as `content`. Raises: ValueError: no message."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    elif isinstance(messages, Mapping):
        messages = [messages]
    if not isinstance(messages, list | tuple) or not all(isinstance(message, Mapping) for message in messages):
        raise ValueError(f"messages is {messages!r:.80}: give a text, or messages with role and content")
    texts = [{**message, "content": _text(message.get("content"))} for message in messages if message.get("role")]
    return [message for message in texts if message["content"].strip()]


def with_name(scope: Mapping[str, str], message: Mapping[str, Any]) -> dict[str, str]:
    """Return the scope for facts from a message: `scope` and, as `actor_id`, the name of the message's speaker."""
    return {**scope, "actor_id": str(message["name"])} if message.get("name") else dict(scope)


def as_time(value: datetime | int | float | str | None, home: tzinfo) -> datetime | None:
    """Return a time from epoch seconds, ISO 8601 or a datetime; without a zone it is in `home`. Raises: ValueError."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.replace(tzinfo=home) if moment is not None and moment.tzinfo is None else moment


def end_of(day: date | str | None, home: tzinfo) -> datetime | None:
    """Return the end of the day `day` in the zone `home`; None: no day. Raises: ValueError: no date."""
    if day is None:
        return None
    try:
        last = date.fromisoformat(day) if isinstance(day, str) else date(day.year, day.month, day.day)
        return datetime(last.year, last.month, last.day, tzinfo=home) + timedelta(days=1)
    except (ValueError, AttributeError, OverflowError):
        raise ValueError(f"expiration_date is {day!r:.80}: give a date such as 2030-12-31") from None


def until(fact: Fact, end: datetime | None) -> Any:
    """Return the changes, as the service of facts takes them, by which a fact is true until `end`; None: for ever."""
    if end is not None and fact.valid_at is not None and fact.valid_at > end:
        return {"invalid_at": end, "valid_at": None}
    return {"invalid_at": end}


def check_top_k(top_k: Any) -> int:
    """Return `top_k`, the most results, after checking it. Raises: ValueError."""
    if type(top_k) is not int or top_k < 0:
        raise ValueError(f"top_k is {top_k!r:.80}: give a number from 0")
    return top_k


def _text(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("text"))
    return content if isinstance(content, str) else ""


def matches(fields: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """Return whether the fields meet all of the filters. Raises: ValueError: an unknown operator, no list."""
    for name, condition in filters.items():
        if name in ("AND", "OR", "NOT"):
            if not isinstance(condition, list) or not condition:
                raise ValueError(f"{name} is {condition!r:.80}: give a list of filters")
            results = [matches(fields, one) for one in condition]
            if not (all(results) if name == "AND" else any(results) is (name == "OR")):
                return False
        elif not _meets(fields.get(name), condition):
            return False
    return True


def _meets(value: Any, condition: Any) -> bool:
    """Return whether a value meets one condition. Raises: ValueError."""
    if isinstance(condition, Mapping):
        return all(_compare(value, name, operand) for name, operand in condition.items())
    if condition == "*":
        return value is not None
    return bool(value == condition or (isinstance(condition, list) and value in condition))


def _compare(value: Any, name: str, operand: Any) -> bool:
    """Return whether a value meets the operator `name`, such as `gt`; values that can't be compared don't. Raises:
    ValueError: an unknown operator."""
    if name not in _COMPARES:
        raise ValueError(f"the filter has the operator {name!r:.80}: give one of {', '.join(_COMPARES)}")
    if value is None and name not in _WITHOUT_VALUE:
        return False
    try:
        return bool(_COMPARES[name](value, operand))
    except TypeError:
        return False
