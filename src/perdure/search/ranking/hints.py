"""What a query says of the rows it wants: whose, from when, and whether a time is asked for. Patterns, no model."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from perdure.search.query.names import different, names_in
from perdure.search.ranking.pool import ASSISTANT, NO_ROLE, USER, Column, QueryHints

__all__ = ["asks_when", "hints_of", "names_a_time", "role_meant", "which_name_a_time"]

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
# What `_WORDS` finds in ASCII stands between spaces after this, in lower case: a search asks a hundred texts.
_ASCII_WORDS = bytes(ord(chr(byte).lower()) if re.match(r"\w", chr(byte), re.ASCII) else 32 for byte in range(256))


def hints_of(
    text: str,
    *,
    names: Sequence[str] = (),
    spans: Sequence[tuple[float, float]] = (),
    now: float = float("nan"),
) -> QueryHints:
    """The hints in a query. Somebody who is named counts unless all of the scope's names are, which tells nothing.

    Args:
        names: of the speakers in the scope; `QueryHints.speakers` holds indexes into it.
        spans: (start, end) in epoch seconds of the times it names, from `search.query.dates`.
        now: epoch seconds.
    """
    named = names_in(text, names)
    if len(named) >= different(tuple(names)):
        named = ()
    return QueryHints(speakers=named, role=role_meant(text), spans=tuple(spans), when=asks_when(text), now=now)


def role_meant(text: str) -> int:
    """Whose words a query in a chat with an assistant is about: "what did you suggest" its own, "what did I say" the
    user's; `NO_ROLE` when it says neither."""
    folded = text.casefold().replace("’", "'")
    other = not folded.isascii()
    if ("you" in folded and _ASSISTANT_SAID.search(folded)) or (other and _ASSISTANT_SAID_ZH.search(folded)):
        return ASSISTANT
    if not _USER_WORDS.isdisjoint(_words(folded)) or (other and _USER_SAID_ZH.search(folded)):
        return USER
    return NO_ROLE


def asks_when(text: str) -> bool:
    """Whether a query asks for a time."""
    folded = text.casefold()
    if folded.isascii() and _WHEN_WORDS.isdisjoint(_words(folded)):
        return False
    return _WHEN.search(folded) is not None


def names_a_time(text: str) -> bool:
    """Whether a text names a time, so that it may say when something was: `Pool.timed`."""
    if text.isascii():
        return not _TIME_WORDS.isdisjoint(_words(text))
    folded = text.casefold()
    return not _TIME_WORDS.isdisjoint(_words(folded)) or _TIME_ZH.search(folded) is not None


def which_name_a_time(texts: Sequence[str]) -> Column:
    """(n) `names_a_time` of the beginning of each text, 2,000 characters."""
    if len(_timed) > TIMED_KEPT:
        _timed.clear()
    keys = list(map(hash, texts))
    found = list(map(_timed.get, keys))
    for row, known in enumerate(found):
        if known is None:
            found[row] = _timed[keys[row]] = names_a_time(texts[row][:TIME_CHARS])
    return np.array(found, np.bool_)


TIMED_KEPT = 65_536
TIME_CHARS = 2_000
_timed: dict[int, bool] = {}
"""Of texts that were met lately, by their hash: to look at all of a pool takes longer than to rank it."""


def _words(text: str) -> list[str]:
    """The words of a text that is ASCII, in lower case, or folded."""
    return text.encode().translate(_ASCII_WORDS).decode().split() if text.isascii() else _WORDS.findall(text)
