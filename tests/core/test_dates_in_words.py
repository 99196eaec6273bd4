"""Dates as people write them, and the dates that are put behind "yesterday" and "last week"."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text.dates.in_words import add_dates, period_in_words
from tests.support.cases import for_each

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
    "this past weekend": "this past weekend [6 to 7 May 2023]",
    "the week before last": "the week before last [24 to 30 April 2023]",
    "the day after tomorrow": "the day after tomorrow [10 May 2023]",
    "at a party two days ago": "at a party two days ago [6 May 2023]",
    "next weekend. 내일 만나": "next weekend [20 to 21 May 2023]. 내일 [9 May 2023] 만나",
    "two weeks from now": "two weeks from now [22 to 28 May 2023]",
    "三天前 and 上上周": "三天前 [5 May 2023] and 上上周 [24 to 30 April 2023]",
    "十五年前": "十五年前 [2008]",
    "this Friday": "this Friday [12 May 2023]",
    "gestern im Zoo": "gestern [7 May 2023] im Zoo",
}
"""Said on Monday, 8 May 2023 -> with dates."""


@for_each(SAID.items())
def test_words_that_count_from_a_day_get_its_date(said: str, shown: str) -> None:
    """In every language that dates are read in."""
    assert add_dates(said, said_at=MONDAY) == shown


@for_each(
    [
        *("today", "tonight", "this morning", "two hours ago", "this week", "this year", "the past two weeks"),
        *("on Friday", "in March", "from Monday to Wednesday", "at Christmas", "on July 20"),
        *("a few weeks ago", "several days ago", "the other day", "in the coming weeks", "the past few months"),
        *("since last week", "before last summer", "until tomorrow"),
        *("on 7 May 2022", "2022-05-07", "last May 2022", "in 1999"),
        *("yesteryear", "weakly", "the last of us", ""),
        *("the last week of June", "last week in June", "my last year of college", "so much in the last month"),
        *("In 2010 I moved; the following year I married", "the next week we left", "that previous week"),
        *("not born yesterday", "It feels like just yesterday I wore it", "the leaders of tomorrow"),
        *("a week from tomorrow", "a week ago Monday", "two weeks ago yesterday", "a week ago last Friday"),
        *("over a year ago", "at least two weeks ago", "two or three weeks ago", "twenty-five years ago"),
        *("a hundred and two years ago", "two years and a month ago", "half a year ago", "feels like a year ago"),
        *("early next year", "end of last week", "first half of last year", "去年底", "上个月底"),
        *("Where did you go over the weekend?", "this weekend", "next Friday", "next Christmas"),
        *("I last sat there", "one is good, the next may be awful", "next march"),
        *("yesterday (May 7)", "yesterday, 7 May", "last Friday, the 5th", "yesterday [7 May 2023]", "昨天（5月7日）"),
        *("`yesterday`", "```\nyesterday\n```", "git log --since=yesterday.txt", "x/yesterday", '{"yesterday": 5}'),
        *('the song "Yesterday"', "“See you tomorrow”, he wrote", "> see you tomorrow", "a yesterday-ish look"),
        *("再来月", "大后天", "下下周", "下下个月", "다다음 주", "明明後日", "大上周", "après-demain nous sommes là"),
        *(
            "几天前",
            "数年前",
            "十几天前",
            "三四天前",
            "二三十年前",
            "2、3日前",
            "1〜2週間前",
            "三天前后",
            "più di due anni fa",
        ),
        *("due o tre anni fa", "明日香が来た", "后天的努力", "국내일주 여행", "die letzte Woche der Ferien"),
    ]
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


@pytest.mark.parametrize("said", ["last week", "next week", "this Friday", "this Tuesday", "next May"])
def test_words_that_may_mean_two_weeks_or_years_have_no_date(said: str) -> None:
    """On a Sunday a week has just begun for some and ends for others; on a Saturday "this Tuesday" may be the next."""
    sunday = datetime(2023, 3, 5, 12, tzinfo=UTC)

    assert add_dates(said, said_at=sunday) == said
    assert add_dates("last weekend", said_at=sunday) == "last weekend [25 to 26 February 2023]"


@pytest.mark.parametrize(
    "part", ["a", "`", "```", '"', "“", "「", ">", "> ", "/", "_", "=", " ", "\n", "last ", "a week "]
)
def test_a_long_text_is_read_in_time_in_proportion_to_its_length(part: str) -> None:
    """Also one of signs that open a quote or code and never close it."""
    started = time.monotonic()

    add_dates(f"{part * 40_000}\nyesterday", said_at=MONDAY)

    assert time.monotonic() - started < 5
