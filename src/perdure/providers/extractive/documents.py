"""Statements of a JSON document, by a fixed table of keys: `{"user": {"name": "Ada", "city": "Turin"}}` says where Ada
lives.

A document is read as `domain.facts.documents` renders it, a line for each value: `user, city: Turin`. Only records of
people are read, and of them only keys that name a known relation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from perdure.core.text.dates import spans
from perdure.providers.extractive.statements import (
    BIRTHDAY,
    KIN,
    NAME,
    OBJECT_SIGNS,
    OBJECT_WORDS,
    RELATIONS,
    Statement,
)


def _words(listed: str) -> frozenset[str]:
    """Words that commas separate."""
    return frozenset(word.strip() for word in listed.split(","))


_LISTED: Final = {
    NAME: "name, full name, display name, 姓名, 名字",
    BIRTHDAY: "birthday, birth date, birthdate, date of birth, dob, 生日, 出生日期",
    "Age": "age, 年龄",
    "Lives in": "city, town, home, residence, lives in, location, home city, 城市, 住址, 居住地, 现居地, 住在",
    "From": "home town, hometown, birthplace, place of birth, comes from, country of origin, 家乡, 籍贯, 来自",
    "Works as": "job, job title, occupation, profession, works as, 职业, 职位, 工作",
    "Works at": "company, employer, workplace, works at, works for, 公司, 单位, 工作单位",
    "Likes": "likes, loves, hobbies, interests, favorites, favourites, 喜欢, 爱好, 兴趣",
    "Dislikes": "dislikes, hates, 不喜欢, 讨厌",
}
_KEYS: Final = {word: key for key, listed in _LISTED.items() for word in _words(listed)}
"""Key of a document -> key of a fact in `statements.RELATIONS`, or a relation of its own."""
_OF_PEOPLE_ONLY: Final = frozenset({BIRTHDAY, "Age", "Works as", "Likes", "Dislikes"})
"""What tells that a record without a word for a person is one."""
_SPEAKER: Final = _words("user, me, myself, profile, 用户, 我")
_PERSON: Final = frozenset(KIN) | _words(
    """person, people, users, customer, customers, client, clients, employee, employees, member, members, contact,
    contacts, friends, author, patient, guest, student, 人, 客户, 员工, 联系人"""
)
_PARTS: Final = _words(
    """address, addresses, home, location, contact details, details, personal, basic info, info, data, job, work,
    employment, occupation, preferences, 地址, 工作, 个人信息"""
)
"""Records that belong to the person whose record they are in."""
_TITLES: Final = frozenset({"title", "role", "position"})
"""Keys of a job, which elsewhere may be anything."""
_JOBS: Final = frozenset({"job", "work", "employment", "occupation", "工作"})
_LINE = re.compile(r"(?P<path>[^:：\n]+): (?P<value>.+)")


def statements_in_document(text: str, *, now: datetime) -> Sequence[Statement]:
    """Find the statements of a rendered document, in order."""
    records: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
        *path, key = (part.strip().casefold() for part in match["path"].split(","))
        record, key = _place(path, key)
        if key:
            records.setdefault(record, []).append((key, match["value"].strip()))
    return [one for path, values in records.items() for one in _of_record(path, values, now)]


def _place(path: list[str], key: str) -> tuple[tuple[str, ...], str]:
    """Return the record that a value belongs to, and the key of the fact in it; empty: it has none."""
    if key == "name" and path and path[-1] in _KEYS and path[-1] not in _PERSON:  # "user, company, name"
        key = path.pop()
    elif key in _TITLES:
        key = "job" if path and path[-1] in _JOBS else key
    while path and path[-1] in _PARTS:
        path.pop()
    return tuple(path), _KEYS.get(key, "")


def _of_record(path: tuple[str, ...], values: Sequence[tuple[str, str]], now: datetime) -> Iterator[Statement]:
    """Find the statements of one record, if it is of a person."""
    word = next((part for part in reversed(path) if not part.isdigit()), "")
    name = next((value for key, value in values if key == NAME and _fits(value)), "")
    if word in _SPEAKER:
        subject = ""
        if name:
            yield Statement(relation=NAME, object=name, kind="Person")
    elif name and (word in _PERSON or _OF_PEOPLE_ONLY & {key for key, _ in values}):
        subject = name
        if word in KIN:
            yield Statement(relation=f"{KIN[word]}_OF", object=name, kind="Person", word=word)
    else:
        return
    for key, value in values:
        if key == BIRTHDAY and next(iter(spans(value, now=now)), None):
            yield Statement(relation=BIRTHDAY, object=value, kind="Event", subject=subject)
        if key in RELATIONS:
            relation, kind = RELATIONS[key]
            for item in filter(_fits, value.split("; ")):
                item = f"{item} years old" if key == "Age" and item.isdecimal() else item
                yield Statement(relation=relation, object=item, kind=kind, subject=subject)


def _fits(value: str) -> bool:
    """Return whether a value is as short as a name."""
    return bool(value) and len(value.split()) <= OBJECT_WORDS and len(value) <= OBJECT_SIGNS
