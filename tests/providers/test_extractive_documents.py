"""What the built-in patterns take from JSON documents as facts: a fixed table of keys, of people alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.features.facts.extraction.patterns import PatternExtractor
from perdure.features.facts.units.documents import render_json
from perdure.features.facts.values.extraction import ReadBatch, SpokenTurn

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
DOCUMENTS: list[tuple[Any, list[str]]] = [
    (
        {"user": {"name": "Ada", "city": "Turin", "likes": ["tea", "go"], "age": 36, "zip": 10121}},
        ["Ada lives in Turin.", "Ada likes tea.", "Ada likes go.", "Ada is 36 years old."],
    ),
    (
        {"profile": {"address": {"city": "Oslo", "street": "Elm"}, "job": {"title": "nurse", "company": "St Mary"}}},
        ["User lives in Oslo.", "User works as nurse.", "User works at St Mary."],
    ),
    ({"user": {"employer": {"name": "Fiat"}, "title": "Dr"}}, ["User works at Fiat."]),
    ({"user": {"date_of_birth": "1990-05-03", "birthday": "soon"}}, ["User's birthday is on 1990-05-03."]),
    (
        {"contacts": [{"name": "Bob", "city": "Rome"}, {"name": "Eva", "company": "Ferrari"}]},
        ["Bob lives in Rome.", "Eva works at Ferrari."],
    ),
    ({"user": {"sister": {"name": "Eva", "city": "Rome"}}}, ["Eva is the sister of User.", "Eva lives in Rome."]),
    ({"name": "Ada", "occupation": "nurse", "city": "Turin"}, ["Ada works as nurse.", "Ada lives in Turin."]),
    ({"用户": {"姓名": "小王", "城市": "北京", "爱好": ["围棋"]}}, ["小王住在北京。", "小王喜欢围棋。"]),
    ({"name": "Da Mario", "city": "Turin"}, []),
    ({"city": "Turin", "temperature": 21}, []),
    ({"company": {"name": "Fiat", "city": "Turin"}}, []),
    ({"user": {"city": "a" * 200, "company": None, "likes": []}}, []),
    ([1, "two"], []),
    ({"note": "I live in Oslo. I like tea."}, ["User lives in Oslo.", "User likes tea."]),
    (["I like figs.", "I like kale."], ["User likes figs.", "User likes kale."]),
    (
        [{"role": "user", "content": "I live in Oslo."}, {"role": "assistant", "content": "I live in Rome."}],
        ["User lives in Oslo."],
    ),
    ({"user": {"name": "Ada", "bio": "I live in Oslo."}}, ["Ada lives in Oslo."]),
    ({"comment": "I live in Rome.", "author": "Zoe"}, []),
    (
        {"name": "Zoe", "posts": [{"text": "I live in Rome."}, {"from": "me", "text": "I like figs."}]},
        ["User likes figs."],
    ),
]


@pytest.mark.parametrize(("document", "texts"), DOCUMENTS)
async def test_keys_of_people_give_facts(document: Any, texts: list[str]) -> None:
    text = render_json(json.dumps(document))
    extraction = await PatternExtractor().extract(
        ReadBatch(turns=[SpokenTurn(number=1, speaker="User", text=text, occurred_at=NOW, kind="json")])
    )

    assert [fact.text for fact in extraction.facts] == texts
