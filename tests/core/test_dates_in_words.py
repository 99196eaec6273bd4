"""Dates as people write them, and the dates that are put behind "yesterday" and "last week"."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text.dates.in_words import add_dates, period_in_words

NOTE = re.compile(r" \[[\w ]+\]")
MONDAY = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)

PERIODS = [
    (date(2023, 5, 7), date(2023, 5, 7), "7 May 2023"),
    (date(2023, 5, 1), date(2023, 5, 7), "1 to 7 May 2023"),
    (date(2023, 4, 28), date(2023, 5, 3), "28 April to 3 May 2023"),
    (date(2022, 12, 30), date(2023, 1, 2), "30 December 2022 to 2 January 2023"),
    (date(2023, 2, 1), date(2023, 2, 28), "February 2023"),
    (date(2024, 2, 1), date(2024, 2, 28), "1 to 28 February 2024"),
    (date(2022, 6, 1), date(2022, 8, 31), "June to August 2022"),
    (date(2021, 12, 1), date(2022, 2, 28), "December 2021 to February 2022"),
    (date(2022, 1, 1), date(2022, 12, 31), "2022"),
    (date(2010, 1, 1), date(2019, 12, 31), "2010 to 2019"),
    (date.min, date.max, "1 to 9999"),
]


@pytest.mark.parametrize(("first", "last", "words"), PERIODS, ids=[words for *_, words in PERIODS])
def test_a_period_is_written_as_short_as_it_can_be(first: date, last: date, words: str) -> None:
    """Whole months without days, whole years without months, what both ends share once."""
    assert period_in_words(first, last) == words


SAID = {
    "We met yesterday.": "We met yesterday [7 May 2023].",
    "We met last week, at noon": "We met last week [1 to 7 May 2023], at noon",
    "since last Friday's talk": "since last Friday's talk",  # without an end
    "Last Friday's talk": "Last Friday [5 May 2023]'s talk",
    "last month and two days ago": "last month [April 2023] and two days ago [6 May 2023]",
    "LAST NIGHT I sang": "LAST NIGHT [7 May 2023] I sang",
    "five years ago": "five years ago [2018]",
    "tomorrow evening": "tomorrow evening [9 May 2023]",
    "我昨天去了": "我昨天 [7 May 2023]去了",
    "去年 in Rome": "去年 [2022] in Rome",
    "gestern im Zoo": "gestern [7 May 2023] im Zoo",
}
"""Said on Monday, 8 May 2023 -> with dates."""


@pytest.mark.parametrize(("said", "shown"), SAID.items())
def test_words_that_count_from_a_day_get_its_date(said: str, shown: str) -> None:
    """In every language that dates are read in."""
    assert add_dates(said, said_at=MONDAY) == shown


@pytest.mark.parametrize(
    "said",
    [
        *("today", "tonight", "this morning", "two hours ago", "this week", "this year", "the past two weeks"),
        *("on Friday", "in March", "from Monday to Wednesday", "at Christmas", "on July 20"),
        *("a few weeks ago", "several days ago", "the other day", "in the coming weeks", "the past few months"),
        *("since last week", "before last summer", "until tomorrow"),
        *("on 7 May 2022", "2022-05-07", "last May 2022", "in 1999"),
        *("yesteryear", "weakly", "the last of us", ""),
    ],
)
def test_what_has_no_exact_date_stays_as_it_is(said: str) -> None:
    """So does a text that tells the date itself, and one of the same day, whose date stands above it."""
    assert add_dates(said, said_at=MONDAY) == said


def test_days_are_those_of_the_zone() -> None:
    """At 23:00 in London it is tomorrow in Tokyo, and yesterday is the day that London still has."""
    late = MONDAY.replace(hour=23)

    assert add_dates("yesterday", said_at=late.astimezone(ZoneInfo("Asia/Tokyo"))) == "yesterday [8 May 2023]"


@given(
    st.lists(st.sampled_from([*SAID, " ", "next year", "\n", "[7 May 2023]", "on Friday", "🌊", "9999"]), max_size=8),
    st.datetimes(timezones=st.sampled_from([UTC, ZoneInfo("Asia/Tokyo")])),
)
def test_nothing_is_taken_away(parts: list[str], said_at: datetime) -> None:
    """Without the notes it is the text again, whatever it holds and at both ends of the calendar."""
    text = " ".join(parts)

    shown = add_dates(text, said_at=said_at)

    assert NOTE.sub("", shown) == NOTE.sub("", text)


def test_a_night_is_of_the_day_on_which_it_begins() -> None:
    """Also when it is told in the same night."""
    assert add_dates("last night", said_at=MONDAY.replace(hour=0) + timedelta(hours=7)) == "last night [7 May 2023]"
