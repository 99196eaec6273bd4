"""Dates by number and by the names of months, in the languages of Latin script."""

from __future__ import annotations

import re

from perdure.search.query.dates.periods import day_of_year, month, month_of_year, year
from perdure.search.query.dates.phrases import OF_YEAR, Needs, Phrase, Rule, any_of, rule, said_year, words

__all__ = ["rules"]

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar jänner janvier enero",
            "february feb februar février fevrier febrero",
            "march mar märz mars marzo",
            "april apr avril abril",
            "may mai mayo",
            "june jun juni juin junio",
            "july jul juli juillet julio",
            "august aug août aout agosto",
            "september sept sep septembre septiembre",
            "october oct oktober octobre octubre",
            "november nov novembre noviembre",
            "december dec dezember décembre decembre diciembre",
        ),
        start=1,
    )
    for name in names.split()
}
# Also words or names of something else: these alone, without a day or a year, are no dates.
_AMBIGUOUS = words(
    "may mai march mars marzo mar april avril abril june juni juin juli julio august agosto jan feb apr "
    "jun jul aug sep sept oct nov dec"
)
_ORDINARY = words("may march mar mars mai sept jan dec jun")  # even before a number, in small letters
_HEADS = frozenset(MONTHS)
_DIGITS = frozenset({"0"})
_ANY_NAME = any_of(MONTHS)
_NAME = f"(?P<month>{_ANY_NAME})[.]?"
_DAY = r"(?P<day>[0-3]?[0-9])(?:st|nd|rd|th|er|[.º])?"
_TO = r"(?:\s{0,2}-\s{0,2}| (?:to|and|until|through|till|bis|und|au|et|al|a|y) )"
_QUANTITIES = words(
    "dollars dollar euros euro pounds bucks usd eur people persons users words tokens characters lines "
    "pages rows items files steps times km kilometers kilometres miles meters metres feet m kg g mb gb kb "
    "calories hours days weeks months years minutes seconds ms messages points percent copies visitors "
    "members employees units pieces children students dólares personas palabras tage wörter menschen "
    "personnes mots ans jahre años"
)
_NUMBERED = words(
    "version v release port page room line issue number no chapter id error code level section ticket "
    "order model pr bug rfc iso top about approximately roughly nearly almost over exactly least most "
    "than python windows office"
)
_BEFORE_WORD = re.compile(r"([\w']{1,20})\s{1,3}$")
_AFTER_WORD = re.compile(r"\s{1,3}([^\W\d_]{1,20})")


def rules() -> list[Rule]:
    return [
        rule(
            _HEADS,
            rf"(?:(?:the|den|am|le|el) )?"
            rf"(?:(?P<first>[0-3]?[0-9])(?:st|nd|rd|th|[.])?{_TO})?{_DAY}(?: of| de)? {_NAME}{OF_YEAR}",
            _dated,
        ),
        rule(
            _HEADS,
            rf"(?:(?P<which>last|past|this|next) )?{_NAME} (?:the )?{_DAY}"
            rf"(?:{_TO}(?P<last>[0-3]?[0-9])(?:st|nd|rd|th)?(?! (?:of )?(?:{_ANY_NAME})))?{OF_YEAR}",
            _dated,
        ),
        rule(_HEADS, rf"(?:(?P<which>last|past|previous|this|next) )?{_NAME}{OF_YEAR}", _month),
        rule(_HEADS, rf"(?P<rel>last|this|next|previous) year,?(?: in)? {_NAME}", _month_of_last_year),
        rule(
            _DIGITS,
            r"(?P<y>[12][0-9]{3})(?P<s>[-/.])(?P<m>[01]?[0-9])(?P=s)(?P<d>[0-3]?[0-9])"
            r"(?:[t ][0-2][0-9]:[0-5][0-9](?::[0-5][0-9](?:[.][0-9]{1,9})?)?(?:z|[+-][0-2][0-9]:?[0-5][0-9])?)?",
            _numeric,
        ),
        rule(_DIGITS, r"(?P<m>[0-3]?[0-9])(?P<s>[/.])(?P<d>[0-3]?[0-9])(?P=s)(?P<y>[12][0-9]{3})", _numeric),
        rule(_DIGITS, r"(?P<y>[12][0-9]{3})-(?P<m>[01][0-9])", _numeric_month),
        rule(_DIGITS, r"(?P<m>[01]?[0-9])/(?P<y>[12][0-9]{3})", _numeric_month),
        rule(_DIGITS, r"(?P<y>19[0-9]{2}|20[0-9]{2}|2100)\s{0,2}-\s{0,2}(?P<y2>19[0-9]{2}|20[0-9]{2}|2100)", _years),
        rule(_DIGITS, r"(?:(?:the )?(?P<word>year|jahr|año|l'année) )?(?P<y>19[0-9]{2}|20[0-9]{2}|2100)", _year),
        rule(_DIGITS, r"(?:the )?(?P<y>1[0-9]{2}0|20[0-9]0)'?s", _decade),
        rule(_DIGITS, r"the '?(?P<y>[5-9]0)'?s", _decade),
    ]


def _dated(found: re.Match[str]) -> Phrase | None:
    """Days of a month, before or after its name."""
    groups = found.groupdict()
    number, one = MONTHS[found["month"]], int(found["day"])
    first, last = (int(groups.get("first") or one), one) if not groups.get("last") else (one, int(groups["last"]))
    if not (1 <= first <= last <= 31):
        return None
    said = said_year(found)
    # "may 3 people come", but "may 3rd", "on may 3" and "may 3?"
    doubtful = (
        said.nothing
        and found["month"] in _ORDINARY
        and "first" not in groups
        and not found[0].endswith(("st", "nd", "rd", "th"))
        and _AFTER_WORD.match(found.string, found.end())
    )
    resolve = day_of_year(number, first, last, *said)
    return Phrase(*found.span(), resolve, "preposition" if doubtful else "nothing", said.nothing)


def _month(found: re.Match[str]) -> Phrase | None:
    before = _BEFORE_WORD.search(found.string, max(0, found.start() - 24), found.start())
    if before and before[1] == "on":  # "on mars"
        return None
    said = said_year(found)
    needs: Needs = "preposition" if said.nothing and found["month"] in _AMBIGUOUS else "nothing"
    return Phrase(*found.span(), month_of_year(MONTHS[found["month"]], *said), needs, said.nothing)


def _month_of_last_year(found: re.Match[str]) -> Phrase:
    later = {"this": 0, "next": 1}.get(found["rel"], -1)
    return Phrase(*found.span(), month_of_year(MONTHS[found["month"]], "", later))


def _numeric(found: re.Match[str]) -> Phrase | None:
    """3/5/2023 has the month first, 3.5.2023 the day; where one can't be a month it is the day."""
    m, d = int(found["m"]), int(found["d"])
    if found.start("y") > found.start("m") and ((found["s"] == "." and d <= 12) or m > 12):
        m, d = d, m
    if not (1 <= m <= 12 and 1 <= d <= 31):
        return None
    return Phrase(*found.span(), day_of_year(m, d, in_year=int(found["y"])))


def _numeric_month(found: re.Match[str]) -> Phrase | None:
    y, m = int(found["y"]), int(found["m"])
    return Phrase(*found.span(), lambda clock: month(y, m)) if 1 <= m <= 12 else None


def _years(found: re.Match[str]) -> Phrase | None:
    y, y2 = int(found["y"]), int(found["y2"])
    return Phrase(*found.span(), lambda clock: year(y, y2 - y + 1)) if y <= y2 else None


def _decade(found: re.Match[str]) -> Phrase:
    y = int(found["y"]) + (1900 if len(found["y"]) == 2 else 0)
    return Phrase(*found.span(), lambda clock: year(y, 10))


def _year(found: re.Match[str]) -> Phrase | None:
    """Four digits are a year unless they count or number something."""
    y, text = int(found["y"]), found.string
    before = _BEFORE_WORD.search(text, max(0, found.start() - 24), found.start())
    after = _AFTER_WORD.match(text, found.end())
    next_word = after[1] if after else ""
    previous = before[1] if before else ""
    if not found["word"] and (next_word in _QUANTITIES or previous in _NUMBERED):
        return None
    # "2000 elephants" counts, "the 2022 elections" dates.
    plural = len(next_word) > 3 and next_word.endswith("s") and not next_word.endswith(("ss", "us", "is"))
    counts = plural and previous not in ("the", "our", "my", "your", "his", "her", "their", "this", "that")
    return Phrase(*found.span(), lambda clock: year(y), "preposition" if counts and not found["word"] else "nothing")
