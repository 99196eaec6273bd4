"""Hints in a query: whose messages it wants, from when, and whether it asks for a time. Patterns, no model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.search.ranking.pool import ASSISTANT, NO_ROLE, USER, QueryHints
from perdure.search.ranking.query import count_distinct, names_in

_SAID = (
    r"(?:say|said|tell|told|mention\w*|suggest\w*|recommend\w*|advis\w+|propos\w+|ask\w*|explain\w*|promis\w+|writ\w+|wrote"
    r"|give|gave|list\w*|shar\w+|describ\w+|answer\w*)"
)
_ASSISTANT_SAID = re.compile(
    rf"\byou(?:'ve|'d)?\s+(?:\w+\s+)?{_SAID}\b|\byour\s+(?:suggestion|recommendation|advice|answer)"
)
_USER_WORDS = frozenset(("i", "my", "mine", "we", "our"))
_ASSISTANT_SAID_ZH = re.compile("你(?:说|提|建议|推荐|告诉|写|给)")
_USER_SAID_ZH = re.compile("我(?:说|提|问|告诉|的|们)")

_WHEN = re.compile(
    r"\bwhen\b(?!\s+\w+ing\b)|\b(?:what|which|on what)\s+(?:date|day|month|year|week|time)\b|\bhow long ago\b"
    r"|什么时候|何时|哪天|几号|いつ"
)
_WHEN_WORDS = frozenset(("when", "date", "day", "month", "year", "week", "time", "ago"))  # one is in any English match
_TIME_WORDS = frozenset(
    (
        *("yesterday", "today", "tonight", "tomorrow", "ago", "last", "next", "since", "recently"),
        *("weekend", "weekends", "week", "weeks", "month", "months", "year", "years"),
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        *("january", "february", "march", "april", "june", "july"),
        *("august", "september", "october", "november", "december"),
        *map(str, range(1900, 2100)),
    )
)
_TIME_ZH = re.compile("昨天|今天|明天|上周|下周|上个月|下个月|去年|明年|[0-9一二三四五六七八九十]+[年月日号]")
_WORDS = re.compile(r"\w+")
TIME_CHARS = 2_000


def hints_of(
    text: str, *, names: Sequence[str] = (), spans: Sequence[tuple[float, float]] = (), now: float = float("nan")
) -> QueryHints:
    """Return the hints in a query.

    A name counts unless the query names all speakers of the scope, which tells nothing.

    Args:
        names: of the speakers in the scope; `QueryHints.speakers` holds indexes into it.
        spans: (start, end) in epoch seconds of the times it names, from `core.text.dates`.
        now: epoch seconds.
    """
    named = names_in(text, names)
    if len(named) >= count_distinct(tuple(names)):
        named = ()
    return QueryHints(speakers=named, role=role_meant(text), spans=tuple(spans), when=asks_when(text), now=now)


def role_meant(text: str) -> int:
    """Return whose words a query in a chat with an assistant means. "What did you suggest" means the assistant's, "what
    did I say" the user's; `NO_ROLE` without either."""
    folded = text.casefold().replace("’", "'")
    other = not folded.isascii()
    if ("you" in folded and _ASSISTANT_SAID.search(folded)) or (other and _ASSISTANT_SAID_ZH.search(folded)):
        return ASSISTANT
    if not _USER_WORDS.isdisjoint(_WORDS.findall(folded)) or (other and _USER_SAID_ZH.search(folded)):
        return USER
    return NO_ROLE


def asks_when(text: str) -> bool:
    """Return whether a query asks for a time."""
    folded = text.casefold()
    if folded.isascii() and _WHEN_WORDS.isdisjoint(_WORDS.findall(folded)):
        return False
    return _WHEN.search(folded) is not None


def names_a_time(text: str) -> bool:
    """Return whether the beginning of a text names a time: `Pool.timed`."""
    folded = text[:TIME_CHARS].casefold()
    if not _TIME_WORDS.isdisjoint(_WORDS.findall(folded)):
        return True
    return not folded.isascii() and _TIME_ZH.search(folded) is not None
