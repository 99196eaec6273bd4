"""Hints in a query: whose messages it wants, from when, and if it asks for a time or a name. Patterns, no model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.search.ranking.pool import ASSISTANT, NO_ROLE, USER, AskedKind, QueryHints
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
_NAME_ASKED = re.compile(
    r"\b(?:where|who|whom|whose|which|names?|named|called|city|cities|country|countries|places?)\b"
)
_NAME = re.compile(r"(?<![.!?] )(?<!^)\b[A-ZÀ-Þ][a-zß-ÿ]+")
_WORDS = re.compile(r"\w+")
NAMES_COUNTED = 4
READ_CHARS = 2_000


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
    return QueryHints(speakers=named, role=role_meant(text), spans=tuple(spans), asked=kind_asked(text), now=now)


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


def kind_asked(text: str) -> AskedKind:
    """Return what a query asks for: "time", "name" (of a person, place or thing) or ""."""
    folded = text.casefold()
    if not (folded.isascii() and _WHEN_WORDS.isdisjoint(_WORDS.findall(folded))) and _WHEN.search(folded):
        return "time"
    return "name" if _NAME_ASKED.search(folded) else ""


def count_asked(kind: AskedKind, text: str) -> int:
    """Return how much of what a query asks for the beginning of a text holds: 1 if it names a time; or the number of
    its names, words with a capital letter that begin no sentence, at most 4."""
    text = text[:READ_CHARS]
    if kind == "name":
        return min(len(_NAME.findall(text)), NAMES_COUNTED)
    folded = text.casefold()
    if not _TIME_WORDS.isdisjoint(_WORDS.findall(folded)):
        return 1
    return int(not folded.isascii() and _TIME_ZH.search(folded) is not None)
