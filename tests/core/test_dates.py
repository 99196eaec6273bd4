"""Dates in a query: what words mean at one clock, and the laws for any text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text.dates import EARLIEST, LATEST, SPANS_MAX, spans
from perdure.core.text.dates.grammar import LANGUAGES, rules
from perdure.core.text.dates.spans import patterns
from tests.support.cases import for_each
from tests.support.strategies import any_text, effort

NOW = datetime(2023, 6, 14, 15, 30, tzinfo=UTC)  # a Wednesday

# (query, the words of its one span, start, end); times in UTC, "" for a side that is open
SPANS = [
    ("what did I do today", "today", "2023-06-14", "2023-06-15"),
    ("yesterday morning", "yesterday morning", "2023-06-13", "2023-06-13 12:00"),
    ("Who called last night?", "last night", "2023-06-13 18:00", "2023-06-14 06:00"),
    ("What did Caroline do in the past week?", "in the past week", "2023-06-07", "2023-06-15"),
    ("tonight to friday", "tonight to friday", "2023-06-14 18:00", "2023-06-17"),
    ("this week", "this week", "2023-06-12", "2023-06-19"),
    ("earlier this week", "earlier this week", "2023-06-12", "2023-06-19"),
    ("last month", "last month", "2023-05-01", "2023-06-01"),
    ("last quarter", "last quarter", "2023-01-01", "2023-04-01"),
    ("next quarter", "next quarter", "2023-07-01", "2023-10-01"),
    ("last weekend", "last weekend", "2023-06-10", "2023-06-12"),
    ("over the weekend", "over the weekend", "2023-06-10", "2023-06-12"),
    ("the week before last", "the week before last", "2023-05-29", "2023-06-05"),
    ("last Monday", "last Monday", "2023-06-12", "2023-06-13"),
    ("What did I say on Monday?", "on Monday", "2023-06-12", "2023-06-13"),
    ("last Wednesday", "last Wednesday", "2023-06-07", "2023-06-08"),
    ("next Friday", "next Friday", "2023-06-16", "2023-06-17"),
    ("Tuesday of last week", "Tuesday of last week", "2023-06-06", "2023-06-07"),
    ("last week on Tuesday", "last week on Tuesday", "2023-06-06", "2023-06-07"),
    ("last sun", "last sun", "2023-06-11", "2023-06-12"),
    ("3 days ago", "3 days ago", "2023-06-11", "2023-06-12"),
    ("two weeks ago", "two weeks ago", "2023-05-29", "2023-06-05"),
    ("a couple of days ago", "a couple of days ago", "2023-06-11", "2023-06-14"),
    ("10 years ago", "10 years ago", "2013-01-01", "2014-01-01"),
    ("I left half a year ago", "half a year ago", "2022-12-01", "2023-01-01"),
    ("a year and a half ago", "a year and a half ago", "2021-12-01", "2022-01-01"),
    ("two and a half years ago", "two and a half years ago", "2020-12-01", "2021-01-01"),
    ("a fortnight ago", "a fortnight ago", "2023-05-29", "2023-06-05"),
    ("half a month ago", "half a month ago", "2023-05-29", "2023-06-05"),
    ("半年前去了", "半年前", "2022-12-01", "2023-01-01"),
    ("一年半前", "一年半前", "2021-12-01", "2022-01-01"),
    ("半个月前", "半个月前", "2023-05-29", "2023-06-05"),
    ("最近半年", "最近半年", "2022-12-14", "2023-06-15"),
    ("vor einem halben Jahr", "vor einem halben Jahr", "2022-12-01", "2023-01-01"),
    ("2 hours ago", "2 hours ago", "2023-06-14 12:30", "2023-06-14 14:30"),
    ("3 days from now", "3 days from now", "2023-06-17", "2023-06-18"),
    ("in the last 3 days", "in the last 3 days", "2023-06-11", "2023-06-15"),
    ("for the last five years", "the last five years", "2018-06-14", "2023-06-15"),
    ("the other day", "the other day", "2023-06-07", "2023-06-14"),
    ("since March", "since March", "2023-03-01", ""),
    ("before 5 May 2023", "before 5 May 2023", "", "2023-05-05"),
    ("until 5 May 2023", "until 5 May 2023", "", "2023-05-06"),
    ("after May 5, 2023", "after May 5, 2023", "2023-05-06", ""),
    ("from March on", "from March on", "2023-03-01", ""),
    ("between 5 March and 10 April", "between 5 March and 10 April", "2023-03-05", "2023-04-11"),
    ("from March to May 2022", "from March to May 2022", "2022-03-01", "2022-06-01"),
    ("from November to February", "from November to February", "2022-11-01", "2023-03-01"),
    ("from March 2022 to May", "from March 2022 to May", "2022-03-01", "2022-06-01"),
    ("from Monday to Wednesday", "from Monday to Wednesday", "2023-06-12", "2023-06-15"),
    ("from yesterday until now", "from yesterday until now", "2023-06-13", "2023-06-15"),
    ("from 2019 to 2021", "from 2019 to 2021", "2019-01-01", "2022-01-01"),
    ("2022–2024", "2022–2024", "2022-01-01", "2025-01-01"),
    ("in March", "in March", "2023-03-01", "2023-04-01"),
    ("in March 2023", "in March 2023", "2023-03-01", "2023-04-01"),
    ("in March of last year", "in March of last year", "2022-03-01", "2022-04-01"),
    ("last year in March", "last year in March", "2022-03-01", "2022-04-01"),
    ("last March", "last March", "2023-03-01", "2023-04-01"),
    ("until next march", "until next march", "", "2024-04-01"),
    ("May '23", "May '23", "2023-05-01", "2023-06-01"),
    ("March 5th", "March 5th", "2023-03-05", "2023-03-06"),
    ("5 March 2023", "5 March 2023", "2023-03-05", "2023-03-06"),
    ("the 5th of May, 2023", "the 5th of May, 2023", "2023-05-05", "2023-05-06"),
    ("Sept. 5", "Sept. 5", "2022-09-05", "2022-09-06"),
    ("29 February", "29 February", "2020-02-29", "2020-03-01"),
    ("5-7 March 2023", "5-7 March 2023", "2023-03-05", "2023-03-08"),
    ("March 5 to 7", "March 5 to 7", "2023-03-05", "2023-03-08"),
    ("Monday, 5 June 2023", "Monday, 5 June 2023", "2023-06-05", "2023-06-06"),
    ("2023-03-05", "2023-03-05", "2023-03-05", "2023-03-06"),
    ("2023-03-05T10:00:00Z", "2023-03-05T10:00:00Z", "2023-03-05", "2023-03-06"),
    ("2023/03/05", "2023/03/05", "2023-03-05", "2023-03-06"),
    ("05.03.2023", "05.03.2023", "2023-03-05", "2023-03-06"),
    ("3/14/2023", "3/14/2023", "2023-03-14", "2023-03-15"),
    ("14/3/2023", "14/3/2023", "2023-03-14", "2023-03-15"),
    ("03/2023", "03/2023", "2023-03-01", "2023-04-01"),
    ("2023-03", "2023-03", "2023-03-01", "2023-04-01"),
    ("Where was I in 2022?", "in 2022", "2022-01-01", "2023-01-01"),
    ("the 2022 elections", "2022", "2022-01-01", "2023-01-01"),
    ("who was born in 1987?", "in 1987", "1987-01-01", "1988-01-01"),
    ("the 1990s", "the 1990s", "1990-01-01", "2000-01-01"),
    ("in the 90s", "in the 90s", "1990-01-01", "2000-01-01"),
    ("summer 2022", "summer 2022", "2022-06-01", "2022-09-01"),
    ("in the summer of 2022", "in the summer of 2022", "2022-06-01", "2022-09-01"),
    ("last summer", "last summer", "2022-06-01", "2022-09-01"),
    ("in spring", "in spring", "2023-03-01", "2023-06-01"),
    ("Christmas 2022", "Christmas 2022", "2022-12-24", "2022-12-27"),
    ("What did she get for Christmas?", "Christmas", "2022-12-24", "2022-12-27"),
    ("at Easter 2023", "at Easter 2023", "2023-04-07", "2023-04-11"),
    ("Thanksgiving last year", "Thanksgiving last year", "2022-11-24", "2022-11-25"),
    ("Q3 2022", "Q3 2022", "2022-07-01", "2022-10-01"),
    ("first quarter of 2023", "first quarter of 2023", "2023-01-01", "2023-04-01"),
    ("first half of 2022", "first half of 2022", "2022-01-01", "2022-07-02"),
    ("early May 2023", "early May 2023", "2023-05-01", "2023-05-11"),
    ("mid-March", "mid-March", "2023-03-11", "2023-03-21"),
    ("late May", "late May", "2023-05-21", "2023-06-01"),
    ("at the beginning of May", "at the beginning of May", "2023-05-01", "2023-05-11"),
    ("at the end of last year", "at the end of last year", "2022-09-01", "2023-01-01"),
    ("the second week of May", "the second week of May", "2023-05-08", "2023-05-15"),
    ("the week of 5 May 2023", "the week of 5 May 2023", "2023-05-01", "2023-05-08"),
    ("the day before yesterday", "the day before yesterday", "2023-06-12", "2023-06-13"),
    ("on the 5th of last month", "on the 5th of last month", "2023-05-05", "2023-05-06"),
    ("今天", "今天", "2023-06-14", "2023-06-15"),
    ("昨天晚上", "昨天晚上", "2023-06-13 18:00", "2023-06-14 06:00"),
    ("大前天", "大前天", "2023-06-11", "2023-06-12"),
    ("我上周说了什么", "上周", "2023-06-05", "2023-06-12"),
    ("上上周", "上上周", "2023-05-29", "2023-06-05"),
    ("上个月", "上个月", "2023-05-01", "2023-06-01"),
    ("上个月15号", "上个月15号", "2023-05-15", "2023-05-16"),
    ("上周三", "上周三", "2023-06-07", "2023-06-08"),
    ("上周末", "上周末", "2023-06-10", "2023-06-12"),
    ("下周一", "下周一", "2023-06-19", "2023-06-20"),
    ("周三", "周三", "2023-06-14", "2023-06-15"),
    ("三天前", "三天前", "2023-06-11", "2023-06-12"),
    ("十五天前", "十五天前", "2023-05-30", "2023-05-31"),
    ("两个星期前", "两个星期前", "2023-05-29", "2023-06-05"),
    ("三个月前", "三个月前", "2023-03-01", "2023-04-01"),
    ("几天前", "几天前", "2023-06-09", "2023-06-13"),
    ("最近三天", "最近三天", "2023-06-11", "2023-06-15"),
    ("过去两周", "过去两周", "2023-05-31", "2023-06-15"),
    ("2023年3月", "2023年3月", "2023-03-01", "2023-04-01"),
    ("二〇二三年三月五日", "二〇二三年三月五日", "2023-03-05", "2023-03-06"),
    ("3月5日", "3月5日", "2023-03-05", "2023-03-06"),
    ("三月", "三月", "2023-03-01", "2023-04-01"),
    ("五月初", "五月初", "2023-05-01", "2023-05-11"),
    ("去年夏天", "去年夏天", "2022-06-01", "2022-09-01"),
    ("去年年底", "去年年底", "2022-09-01", "2023-01-01"),
    ("2020年春节", "2020年春节", "2020-01-20", "2020-02-28"),
    ("昨晚", "昨晚", "2023-06-13 18:00", "2023-06-14 06:00"),
    ("从三月到五月", "从三月到五月", "2023-03-01", "2023-06-01"),
    ("三月和五月之间", "三月和五月之间", "2023-03-01", "2023-06-01"),
    ("2021年到2023年", "2021年到2023年", "2021-01-01", "2024-01-01"),
    ("3月以来", "3月以来", "2023-03-01", ""),
    ("2020年以前", "2020年以前", "", "2020-01-01"),
    ("上周一起吃饭", "上周", "2023-06-05", "2023-06-12"),
    ("２０２３年３月", "２０２３年３月", "2023-03-01", "2023-04-01"),
    ("昨日", "昨日", "2023-06-13", "2023-06-14"),
    ("一昨日", "一昨日", "2023-06-12", "2023-06-13"),
    ("先週の水曜日", "先週の水曜日", "2023-06-07", "2023-06-08"),
    ("今週", "今週", "2023-06-12", "2023-06-19"),
    ("先月", "先月", "2023-05-01", "2023-06-01"),
    ("月曜日", "月曜日", "2023-06-12", "2023-06-13"),
    ("三日前", "三日前", "2023-06-11", "2023-06-12"),
    ("3ヶ月前", "3ヶ月前", "2023-03-01", "2023-04-01"),
    ("10時間前", "10時間前", "2023-06-14 04:30", "2023-06-14 06:30"),
    ("この3日間", "この3日間", "2023-06-11", "2023-06-15"),
    ("2023年3月5日", "2023年3月5日", "2023-03-05", "2023-03-06"),
    ("去年の夏", "去年の夏", "2022-06-01", "2022-09-01"),
    ("3月から5月まで", "3月から5月まで", "2023-03-01", "2023-06-01"),
    ("3月まで", "3月まで", "", "2023-04-01"),
    ("어제", "어제", "2023-06-13", "2023-06-14"),
    ("그저께", "그저께", "2023-06-12", "2023-06-13"),
    ("지난주", "지난주", "2023-06-05", "2023-06-12"),
    ("지난주 수요일", "지난주 수요일", "2023-06-07", "2023-06-08"),
    ("지난 주말", "지난 주말", "2023-06-10", "2023-06-12"),
    ("지난달", "지난달", "2023-05-01", "2023-06-01"),
    ("작년 여름", "작년 여름", "2022-06-01", "2022-09-01"),
    ("이번 주", "이번 주", "2023-06-12", "2023-06-19"),
    ("3일 전", "3일 전", "2023-06-11", "2023-06-12"),
    ("두 달 전", "두 달 전", "2023-04-01", "2023-05-01"),
    ("며칠 전", "며칠 전", "2023-06-09", "2023-06-13"),
    ("최근 3일", "최근 3일", "2023-06-11", "2023-06-15"),
    ("2023년 3월 5일", "2023년 3월 5일", "2023-03-05", "2023-03-06"),
    ("월요일", "월요일", "2023-06-12", "2023-06-13"),
    ("3월부터 5월까지", "3월부터 5월까지", "2023-03-01", "2023-06-01"),
    ("was war gestern Abend", "gestern Abend", "2023-06-13 17:00", "2023-06-14"),
    ("letzte Woche", "letzte Woche", "2023-06-05", "2023-06-12"),
    ("letzten Monat", "letzten Monat", "2023-05-01", "2023-06-01"),
    ("vor zwei Wochen", "vor zwei Wochen", "2023-05-29", "2023-06-05"),
    ("in den letzten 3 Tagen", "in den letzten 3 Tagen", "2023-06-11", "2023-06-15"),
    ("im März 2023", "im März 2023", "2023-03-01", "2023-04-01"),
    ("am 5. März", "am 5. März", "2023-03-05", "2023-03-06"),
    ("zwischen März und Mai 2022", "zwischen März und Mai 2022", "2022-03-01", "2022-06-01"),
    ("qu'est-ce que j'ai dit hier", "hier", "2023-06-13", "2023-06-14"),
    ("la semaine dernière", "la semaine dernière", "2023-06-05", "2023-06-12"),
    ("il y a 3 jours", "il y a 3 jours", "2023-06-11", "2023-06-12"),
    ("le 5 mars 2023", "le 5 mars 2023", "2023-03-05", "2023-03-06"),
    ("depuis janvier", "depuis janvier", "2023-01-01", ""),
    ("lundi dernier", "lundi dernier", "2023-06-12", "2023-06-13"),
    ("ayer", "ayer", "2023-06-13", "2023-06-14"),
    ("la semana pasada", "la semana pasada", "2023-06-05", "2023-06-12"),
    ("hace dos semanas", "hace dos semanas", "2023-05-29", "2023-06-05"),
    ("5 de marzo de 2023", "5 de marzo de 2023", "2023-03-05", "2023-03-06"),
    ("desde enero", "desde enero", "2023-01-01", ""),
    ("últimos 3 días", "últimos 3 días", "2023-06-11", "2023-06-15"),
    ("entre enero y marzo de 2022", "entre enero y marzo de 2022", "2022-01-01", "2022-04-01"),
    ("cosa ho detto ieri sera", "ieri sera", "2023-06-13 17:00", "2023-06-14"),
    ("la settimana scorsa", "la settimana scorsa", "2023-06-05", "2023-06-12"),
    ("tre giorni fa", "tre giorni fa", "2023-06-11", "2023-06-12"),
    ("negli ultimi 3 giorni", "negli ultimi 3 giorni", "2023-06-11", "2023-06-15"),
    ("il 5 marzo 2023", "il 5 marzo 2023", "2023-03-05", "2023-03-06"),
    ("da gennaio", "da gennaio", "2023-01-01", ""),
    ("prima del 5 maggio 2023", "prima del 5 maggio 2023", "", "2023-05-05"),
    ("tra gennaio e marzo 2022", "tra gennaio e marzo 2022", "2022-01-01", "2022-04-01"),
    ("lunedì scorso", "lunedì scorso", "2023-06-12", "2023-06-13"),
    ("a fine maggio", "fine maggio", "2023-05-21", "2023-06-01"),
    ("再来月の予定", "再来月", "2023-08-01", "2023-09-01"),
    ("再来週の金曜", "再来週の金曜", "2023-06-30", "2023-07-01"),
    ("再来年", "再来年", "2025-01-01", "2026-01-01"),
    ("しあさって", "しあさって", "2023-06-17", "2023-06-18"),
    ("3、4日前", "3、4日前", "2023-06-10", "2023-06-12"),
    ("3〜4週間前", "3〜4週間前", "2023-05-15", "2023-05-29"),
    ("下下周", "下下周", "2023-06-26", "2023-07-03"),
    ("下下周三", "下下周三", "2023-06-28", "2023-06-29"),
    ("下下个月", "下下个月", "2023-08-01", "2023-09-01"),
    ("大上个月", "大上个月", "2023-04-01", "2023-05-01"),
    ("大后天", "大后天", "2023-06-17", "2023-06-18"),
    ("大後天", "大後天", "2023-06-17", "2023-06-18"),
    ("后年", "后年", "2025-01-01", "2026-01-01"),
    ("三四天前", "三四天前", "2023-06-10", "2023-06-12"),
    ("两三个月前", "两三个月前", "2023-03-01", "2023-05-01"),
    ("十五六天前", "十五六天前", "2023-05-29", "2023-05-31"),
    ("二三十年前", "二三十年前", "1993-01-01", "2004-01-01"),
    ("三十四天前", "三十四天前", "2023-05-11", "2023-05-12"),
    ("最近两三天", "最近两三天", "2023-06-11", "2023-06-15"),
    ("三到五天前", "三到五天前", "2023-06-09", "2023-06-12"),
    ("다다음 주", "다다음 주", "2023-06-26", "2023-07-03"),
    ("다다음달", "다다음달", "2023-08-01", "2023-09-01"),
    ("글피", "글피", "2023-06-17", "2023-06-18"),
    ("내후년", "내후년", "2025-01-01", "2026-01-01"),
    ("qu'est-ce que je fais après-demain", "après-demain", "2023-06-16", "2023-06-17"),
    ("avant-avant-hier je suis parti", "avant-avant-hier", "2023-06-11", "2023-06-12"),
    ("il y a 2 ou 3 jours", "il y a 2 ou 3 jours", "2023-06-11", "2023-06-13"),
    ("antes de ayer", "antes de ayer", "2023-06-12", "2023-06-13"),
    ("pasado mañana", "pasado mañana", "2023-06-16", "2023-06-17"),
    ("vorletzte Woche", "vorletzte Woche", "2023-05-29", "2023-06-05"),
    ("übernächste Woche", "übernächste Woche", "2023-06-26", "2023-07-03"),
    ("vorletzten Mai", "vorletzten Mai", "2022-05-01", "2022-06-01"),
    ("übernächsten Montag", "übernächsten Montag", "2023-06-26", "2023-06-27"),
    ("vorletzten Mittwoch", "vorletzten Mittwoch", "2023-05-31", "2023-06-01"),
    ("vor zwei bis drei Wochen", "vor zwei bis drei Wochen", "2023-05-22", "2023-06-05"),
    ("the week after next", "the week after next", "2023-06-26", "2023-07-03"),
    ("two or three days ago", "two or three days ago", "2023-06-11", "2023-06-13"),
    ("3-4 days ago", "3-4 days ago", "2023-06-10", "2023-06-12"),
    ("two to three weeks ago", "two to three weeks ago", "2023-05-22", "2023-06-05"),
    ("a day or two ago", "a day or two ago", "2023-06-12", "2023-06-14"),
    ("in the last two or three weeks", "in the last two or three weeks", "2023-05-24", "2023-06-15"),
]

NO_DATES = [
    "What is the name of the dog?",
    "may I ask",
    "you may be right",
    "may 3 people come",
    "march on Rome",
    "the second time we met",
    "the sun is up",
    "June said hello",
    "April and June sang",
    "fall asleep",
    "spring cleaning",
    "Christmas gifts",
    "New Year's Eve",
    "now",
    "every Monday",
    "Mondays",
    "last time",
    "life on Mars",
    "2000 dollars",
    "2000 elephants",
    "in 2000 words",
    "2,000",
    "$2000",
    "2000€",
    "2023-24",
    "version 2024.1",
    "room 2001",
    "issue 2023",
    "#2023",
    "call 555-2023-1999",
    "E4711",
    "in 1500",
    "99/99/2023",
    "2023-13-45",
    "30 February",
    "February 29, 2023",
    "from 5pm to 6pm",
    "99999 years ago",
    "was ist hier los",
    "mes amis",
    "日本年金",
    "日本月刊",
    "以前年轻的时候",
    "3日間",
    "这个人是谁",
    "東京に行く",
    "안녕하세요",
]


def _edge(text: str, open_side: datetime) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else open_side


@for_each(SPANS)
def test_words_mean_their_span(query: str, words: str, start: str, end: str) -> None:
    """One span, in UTC, its end not included, and the words it was read from."""
    (span,) = spans(query, now=NOW)

    assert (span.text, span.start, span.end) == (words, _edge(start, EARLIEST), _edge(end, LATEST))
    assert query[span.first : span.last] == words


@for_each(NO_DATES)
def test_words_that_only_look_like_dates_are_none(query: str) -> None:
    """Ordinary words, quantities, numbers of things, and days that no calendar has."""
    assert spans(query, now=NOW) == ()


def test_several_dates_are_several_spans_in_order() -> None:
    """Neither ends nor one within the other: what is only listed stays apart."""
    found = spans("in May and June 2022, yesterday, and 去年", now=NOW)

    assert [(span.text, span.start.year, span.start.month) for span in found] == [
        ("in May", 2022, 5),
        ("June 2022", 2022, 6),
        ("yesterday", 2023, 6),
        ("去年", 2022, 1),
    ]


def test_no_more_spans_than_the_limit() -> None:
    """A text of dates is a log."""
    found = spans(" ".join(f"2023-01-{day:02}" for day in range(1, 29)), now=NOW)

    assert [span.text for span in found] == [f"2023-01-{day:02}" for day in range(1, SPANS_MAX + 1)]


def test_the_day_is_that_of_the_time_zone() -> None:
    """At half past three in the afternoon of London it is the next day in Kiribati."""
    (here,) = spans("today", now=NOW, timezone="Pacific/Kiritimati")

    assert here.start == datetime(2023, 6, 14, 10, tzinfo=UTC)
    assert here.end == datetime(2023, 6, 15, 10, tzinfo=UTC)


def test_days_on_which_clocks_change_have_their_hours() -> None:
    """23 hours in spring, 25 in autumn; the night between has eleven by the clock that goes forward."""
    spring = datetime(2023, 3, 26, 12, tzinfo=UTC)
    (short,) = spans("today", now=spring, timezone="Europe/Rome")
    (long,) = spans("29 October 2023", now=NOW, timezone="Europe/Rome")
    (night,) = spans("last night", now=spring, timezone="Europe/Rome")

    assert short.end - short.start == timedelta(hours=23)
    assert long.end - long.start == timedelta(hours=25)
    assert night.end - night.start == timedelta(hours=11)


def test_a_day_that_clocks_skipped_is_none() -> None:
    """Samoa had no 30 December 2011."""
    assert spans("30 December 2011", now=NOW, timezone="Pacific/Apia") == ()
    assert len(spans("31 December 2011", now=NOW, timezone="Pacific/Apia")) == 1


def test_a_month_without_a_year_is_the_latest_that_has_begun() -> None:
    """Also the one that has only just begun."""
    at = datetime(2023, 3, 1, tzinfo=UTC)

    assert spans("in March", now=at)[0].start == at
    assert spans("in March", now=at - timedelta(seconds=1))[0].start == datetime(2022, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("now", [EARLIEST, LATEST, EARLIEST.replace(tzinfo=None), LATEST.replace(tzinfo=None)])
@pytest.mark.parametrize("home", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "no such zone"])
def test_the_ends_of_the_calendar_are_no_errors(now: datetime, home: str) -> None:
    """What lies beyond them is left out."""
    for query, *_ in SPANS:
        for span in spans(query, now=now, timezone=home):
            assert span.start < span.end


CLOCKS = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))]))
ZONES = st.sampled_from(["UTC", "Europe/Rome", "America/Havana", "Pacific/Apia", "Asia/Kathmandu", "nowhere"])
_JOINTS = (
    "since before between and from to until early the end of in last next"
    " 年 月 日 前 から まで 到 전 - , . İ ſ 0 31 9999"
)
SNIPPETS = st.sampled_from([*(query for query, *_ in SPANS), *NO_DATES, *re.findall(r"\S+", _JOINTS)])


@effort(12, 3000)
@given(st.lists(st.one_of(SNIPPETS, any_text()), max_size=6), st.sampled_from(["", " ", ", ", "\n"]), CLOCKS, ZONES)
def test_any_text_gives_true_spans(pieces: list[str], joint: str, now: datetime, home: str) -> None:
    """Never an error; each span begins before it ends, stands where it says, and none overlaps another."""
    text = joint.join(pieces)
    found = spans(text, now=now, timezone=home)

    last = 0
    for span in found:
        assert EARLIEST <= span.start < span.end <= LATEST
        assert text[span.first : span.last] == span.text != ""
        assert span.first >= last
        last = span.last
    assert spans(text, now=now, timezone=home) == found


_WORDS = ["What", "dog", "Caroline", "狗", "名字", "친구", "für", "où", "last", "past"]


@effort(12, 2000)
@given(st.lists(st.sampled_from(_WORDS), max_size=12))
def test_text_without_digits_and_heads_has_none(words: list[str]) -> None:
    """The cheap look at the words alone decides."""
    assert spans(" ".join(words), now=NOW) == ()


@effort(12, 1000)
@given(
    st.sampled_from(SPANS),
    st.sampled_from(["", "Hm, ", "Tell me: ", "“"]),
    st.sampled_from(["", "?", ", please", "!”"]),
)
def test_what_stands_around_a_date_does_not_change_it(case: tuple[str, str, str, str], before: str, after: str) -> None:
    """Nor its offsets, which move with it."""
    query, words, start, end = case
    (span,) = spans(before + query + after, now=NOW)

    assert (span.text, span.start, span.end) == (words, _edge(start, EARLIEST), _edge(end, LATEST))
    assert span.first == len(before) + query.index(words)


def test_patterns_have_bounds() -> None:
    """No repeat without an end: from each place of a text a pattern looks at so many characters at most, so that the
    time grows with the text and no faster."""
    sources = [*(rule.source for rule in rules()), *(pattern.pattern for pattern in patterns().values())]

    assert len(rules()) > 40
    assert len(patterns()) >= 8
    for source in sources:
        _, most = vars(re)["_parser"].parse(source).getwidth()
        assert most <= 120, source


def test_each_word_of_the_tables_has_a_value() -> None:
    """A row that isn't read as meant gives a word without a value, or one that still has a separator in it."""
    for language in LANGUAGES:
        for category, table in language.tables.items():
            numbers = all(value.lstrip("-").isdecimal() for value in table.values())
            assert table, category
            assert not any(set(word) & set(";:|_/") for word in table if not word.endswith(")?(?!\\w)")), category
            assert numbers or category not in (
                "shift",
                "after",
                "years",
                "week",
                "weekday",
                "month",
                "season",
                "quarter",
            )


@pytest.mark.parametrize("text", ["last ", "5 5 ", "from march to ", "三三三天", "2023-", " ", "the first week of "])
def test_long_texts_of_beginnings_are_read(text: str) -> None:
    """What begins a date again and again, and the date at the end of it all."""
    found = spans(text * 2000 + " . yesterday", now=NOW)

    assert len(found) <= SPANS_MAX
    assert found == () or found[-1].last <= len(text) * 2000 + 12
