"""Chinese, Japanese and Korean: no spaces to rely on, particles after what they belong to, numbers in characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from perdure.search.query.dates.periods import (
    Clock,
    Period,
    Resolve,
    Unit,
    ago,
    day,
    day_of_year,
    day_part,
    feast,
    month_of_year,
    relative,
    rolling,
    season_of_year,
    weekday,
    year,
)
from perdure.search.query.dates.phrases import Phrase, Rule, any_of

__all__ = ["HINTS", "rules"]

HINTS = re.compile(
    "[年月日天周週期拝拜晚夜前近昨今明后後夏春秋冬节節诞誕庆慶旦おきク년월일주제께달간전늘밤해봄름을울내모크]"
)
"""A text without any of these characters has no date that is found here."""

_DIGITS = {character: at for at, character in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2, "兩": 2, "○": 0}
_N = "(?P<n>[0-9]{1,4}|[〇零一二两兩三四五六七八九十百]{1,5}|几|幾|数|好几)"
_NATIVE = {
    "한": 1,
    "하나": 1,
    "두": 2,
    "세": 3,
    "네": 4,
    "다섯": 5,
    "여섯": 6,
    "일곱": 7,
    "여덟": 8,
    "아홉": 9,
    "열": 10,
}
_NATIVE_DAYS = {"하루": 1, "이틀": 2, "사흘": 3, "나흘": 4, "열흘": 10, "보름": 15}
_KN = rf"(?P<n>[0-9]{{1,4}}|{any_of(_NATIVE)}|몇|며)"
_SAID_DAYS: Mapping[str, int] = {
    **dict.fromkeys(("大前天",), -3),
    **dict.fromkeys(("前天", "一昨日", "おととい", "그저께", "그제", "엊그제"), -2),
    **dict.fromkeys(("昨天", "昨日", "昨", "昨儿", "きのう", "어제"), -1),
    **dict.fromkeys(("今天", "今日", "今", "오늘"), 0),
    **dict.fromkeys(("明天", "明日", "내일"), 1),
    **dict.fromkeys(("后天", "後天", "明後日", "모레"), 2),
}
_PARTS = {
    **dict.fromkeys(("早上", "上午", "早", "朝", "早晨", "아침", "오전"), "morning"),
    **dict.fromkeys(("下午", "午後", "오후"), "afternoon"),
    **dict.fromkeys(("晚上", "晚", "夜里", "夜", "の夜", "夕方", "저녁", "밤"), "night"),
}
_UNITS: Mapping[str, Unit] = {
    **dict.fromkeys(("分", "分钟", "分鐘", "분"), "minute"),
    **dict.fromkeys(("小时", "小時", "钟头", "時間", "시간"), "hour"),
    **dict.fromkeys(("天", "日", "일"), "day"),
    **dict.fromkeys(("周", "週", "週間", "星期", "礼拜", "禮拜", "주", "주일"), "week"),
    **dict.fromkeys(("月", "ヶ月", "か月", "カ月", "ヵ月", "箇月", "달", "개월"), "month"),
    **dict.fromkeys(("年", "年間", "년", "해"), "year"),
}
_WEEK = "(?:周|週|星期|礼拜|禮拜)"
_LAST = "(?:上个|上個|上)"
_THIS = "(?:这个|這個|这|這|(?<![日基])本)"
_NEXT = "(?:下个|下個|下)"
_COUNTED = (
    "(?:个|個)?(?P<unit>分钟|分鐘|分|小时|小時|钟头|時間|天|日|週間|周|週|星期|礼拜|禮拜|[ヶかカヵ箇]月|月|年間|年)"
)
_KUNIT = "(?P<unit>분|시간|일|주일|주|개월|달|년|해)"
_SEASONS = {"春": 0, "夏": 1, "秋": 2, "冬": 3, "봄": 0, "여름": 1, "가을": 2, "겨울": 3}
_FEASTS = {
    **dict.fromkeys(("圣诞节", "聖誕節", "圣诞", "聖誕", "クリスマス", "크리스마스"), "christmas"),
    **dict.fromkeys(("元旦", "元日", "새해"), "new year"),
    **dict.fromkeys(("春节", "春節", "过年", "旧正月"), "spring festival"),
    **dict.fromkeys(("国庆节", "國慶節", "国庆", "國慶"), "national day"),
}
_YEARS = {
    **dict.fromkeys(("大前年",), -3),
    **dict.fromkeys(("前年", "一昨年", "おととし", "재작년"), -2),
    **dict.fromkeys(("去年", "昨年", "작년", "지난해"), -1),
    **dict.fromkeys(("今年", "올해", "금년"), 0),
    **dict.fromkeys(("明年", "来年", "來年", "내년"), 1),
}
_CHINESE_DAY = "[一二三四五六日天](?![年个個月起直些样樣次位共定般本元])"  # 上周一起, 上周日本
_DAY_OF_WEEK = {character: at % 7 for at, character in enumerate("一二三四五六日월화수목금토일月火水木金土")} | {
    "天": 6,
    "日": 6,
}
_NOT_BEFORE = "(?<![以之目])"  # 以前年轻, 目前天气
_SAID_YEARS = rf"{_NOT_BEFORE}(?:{any_of(_YEARS)})(?![代轻輕龄])"
_YEAR = rf"(?:(?P<year>[12][0-9]{{3}}|[一二][〇○零一二三四五六七八九]{{3}})\s?[年년]|(?P<said>{_SAID_YEARS}))"
_MONTH = r"(?P<month>[01]?[0-9]|十[一二]?|[一二三四五六七八九])\s?[月월](?!曜|份?[の ]?間)"
_DAY = r"(?P<day>[0-3]?[0-9]|[一二]?十[一二三四五六七八九]?|三十一?|[一二三四五六七八九])\s?[日号號일]"


def rules() -> list[Rule]:
    days = any_of(_SAID_DAYS.keys() - {"昨", "今"})
    parts = any_of(_PARTS)
    season = r"(?P<season>[春夏秋冬](?:天|季)?|봄|여름|가을|겨울)"
    feasts = f"(?P<feast>{any_of(_FEASTS)})"
    return [
        _rule(rf"{_NOT_BEFORE}(?P<said>{days})(?!天)(?:\s?の?(?P<part>{parts}))?", _said_day),
        _rule(r"(?P<said>昨|今)(?P<part>晚|夜|早|朝)|어젯(?P<part2>밤)|오늘(?P<part3>밤)", _night),
        _rule(
            rf"(?:(?P<last2>上上|先々)(?:个|個)?|(?P<last>{_LAST}|先)|(?P<this>{_THIS}|今)|(?P<next>{_NEXT}|来|來))"
            rf"(?:周末|週末|{_WEEK}(?P<day>の?[月火水木金土日]曜日?|{_CHINESE_DAY})?)",
            _week,
        ),
        _rule(
            r"(?:(?P<last2>지지난)|(?P<last>지난|저번)|(?P<this>이번)|(?P<next>다음)|(?P<this2>금))\s?주(?P<end>\s?말)?"
            r"(?:\s{0,2}(?P<day>[월화수목금토일])요일)?",
            _week,
        ),
        _rule(
            r"(?:(?P<last2>上上|先々|지지난)|(?P<last>上|先|지난|저번)|(?P<this>这|這|(?<![日基])本|今|이번)|(?P<next>下|来|來|다음))"
            rf"\s?(?:个|個)?[月달](?:(?:の|的|\s)?{_DAY})?",
            _month,
        ),
        _rule(rf"{_N}{_COUNTED}(?:以|之)?前", _ago),
        _rule(rf"(?:(?P<days>{any_of(_NATIVE_DAYS)}|며칠)|{_KN}\s?{_KUNIT})\s?전", _ago),
        _rule(
            rf"(?:最近|过去|過去|(?<!附)近|{_NOT_BEFORE}前|这|這|ここ|この|直近)の?{_N}{_COUNTED}間?(?!前)", _rolling
        ),
        _rule(rf"(?:최근|지난)\s?(?:(?P<days>{any_of(_NATIVE_DAYS)}|며칠)|{_KN}\s?{_KUNIT})(?:간|\s?동안)?", _rolling),
        _rule(rf"{_YEAR}(?:の|\s{{1,2}})?(?:{_MONTH}份?(?:の|\s{{1,2}})?(?:{_DAY})?|{feasts}|{season})?", _dated),
        _rule(rf"(?<![0-9一二三四五六七八九十〇个個]){_MONTH}份?(?:\s{{0,2}}{_DAY})?", _dated),
        _rule(rf"{feasts}", _dated),
        _rule(
            rf"(?:{_WEEK}(?P<day>[一二三四五六日天])(?!年|个|個|月)|(?P<day2>[月火水木金土日])曜日?|(?P<day3>[월화수목금토일])요일)",
            _weekday,
        ),
        _rule("(?:周末|週末|주말)", lambda found: Phrase(*found.span(), _weekend, "preposition")),
    ]


def _rule(pattern: str, phrase: Callable[[re.Match[str]], Phrase | None]) -> Rule:
    return Rule(frozenset(), pattern, phrase)


def _phrase(found: re.Match[str], resolve: Resolve, *, floating: bool = False) -> Phrase:
    return Phrase(*found.span(), resolve, floating=floating)


def _number(text: str) -> int:
    """十五 is 15, 二〇二三 is 2023, 一百二十 is 120."""
    if text[0] in "0123456789":
        return int(text)
    if text in _NATIVE:
        return _NATIVE[text]
    if not any(character in "十百" for character in text):
        return int("".join(str(_DIGITS[character]) for character in text))
    total, digit = 0, 0
    for character in text:
        if character in "十百":
            total += (digit or 1) * (10 if character == "十" else 100)
            digit = 0
        else:
            digit = _DIGITS[character]
    return total + digit


def _said_day(found: re.Match[str]) -> Phrase:
    part = _PARTS.get(found["part"] or "", "")
    return _phrase(found, day_part(relative("day", _SAID_DAYS[found["said"]]), part))


def _night(found: re.Match[str]) -> Phrase:
    part = _PARTS[found["part"] or found["part2"] or found["part3"]]
    said = found["said"] or ("昨" if found["part2"] else "今")
    return _phrase(found, day_part(relative("day", _SAID_DAYS[said]), part))


def _later(found: re.Match[str]) -> int:
    groups = found.groupdict()
    return -2 if groups.get("last2") else -1 if groups.get("last") else 1 if groups.get("next") else 0


def _week(found: re.Match[str]) -> Phrase:
    later, groups = _later(found), found.groupdict()
    if found[0].endswith(("周末", "週末")) or groups.get("end"):
        return _phrase(found, relative("weekend", later))
    if not found["day"]:
        return _phrase(found, relative("week", later))
    return _phrase(found, partial(_day_of_week, _DAY_OF_WEEK[found["day"].removeprefix("の")[0]], later))


def _month(found: re.Match[str]) -> Phrase:
    later = _later(found)
    if not found["day"]:
        return _phrase(found, relative("month", later))
    number = _number(found["day"])

    def resolve(clock: Clock) -> Period:
        begin, _ = relative("month", later)(clock)
        return day(begin.replace(day=number))

    return _phrase(found, resolve)


def _day_of_week(number: int, later: int, clock: Clock) -> Period:
    monday, _ = relative("week", later)(clock)
    return day(monday + timedelta(days=number))


def _weekend(clock: Clock) -> Period:
    return relative("weekend", 0 if clock.today.weekday() >= 5 else -1)(clock)


def _count(found: re.Match[str]) -> tuple[int, int, Unit]:
    groups = found.groupdict()
    if (days := groups.get("days")) is not None:
        number = _NATIVE_DAYS.get(days)
        return (2, 5, "day") if number is None else (number, number, "day")
    unit = _UNITS[found["unit"]]
    if found["n"] in ("几", "幾", "数", "好几", "몇", "며"):
        return 2, 5, unit
    number = _number(found["n"])
    return number, number, unit


def _ago(found: re.Match[str]) -> Phrase | None:
    least, most, unit = _count(found)
    # "3月前" is before March, "2020年前" before that year; three months are 三个月.
    groups = found.groupdict()
    bare = groups.get("unit") == "月" and "个" not in found[0] and "個" not in found[0]
    return None if bare or (unit == "year" and least >= 1000) else _phrase(found, ago(least, most, unit))


def _rolling(found: re.Match[str]) -> Phrase | None:
    _, most, unit = _count(found)
    return _phrase(found, rolling(most, unit))


def _dated(found: re.Match[str]) -> Phrase | None:
    """A year, a month or a day, as far as the text says."""
    groups = found.groupdict()
    in_year = None if not groups.get("year") else _number(groups["year"])
    later = _YEARS[groups["said"]] if groups.get("said") else None
    floating = in_year is None and later is None
    if groups.get("month"):
        number = _number(groups["month"])
        if not 1 <= number <= 12:
            return None
        if not groups.get("day"):
            return _phrase(found, month_of_year(number, "", later, in_year), floating=floating)
        one = _number(groups["day"])
        return _phrase(found, day_of_year(number, one, None, "", later, in_year), floating=floating) if one else None
    if groups.get("season"):
        said = groups["season"]
        number = _SEASONS[said if said in _SEASONS else said[0]]
        return _phrase(found, season_of_year(number, "", later, in_year))
    if groups.get("feast"):
        return _phrase(found, feast(_FEASTS[groups["feast"]], "", later, in_year), floating=floating)
    if in_year is not None:
        return _phrase(found, lambda clock: year(in_year))
    return _phrase(found, relative("year", later or 0))


def _weekday(found: re.Match[str]) -> Phrase | None:
    if found.string[max(0, found.start() - 1) : found.start()] in ("每", "毎", "매"):
        return None
    said = found["day"] or found["day2"] or found["day3"]
    return Phrase(*found.span(), weekday(_DAY_OF_WEEK[said], ""), floating=True, weekday=True)
