"""What the block `human` says and what the memory graph believes are the same, whatever is said in whatever order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Perdure
from perdure.testing import InlineStore
from tests.features.extractive.test_fact_precision import SAID, TOLD

KEYS = {
    "Lives in": r"(?:.* lives in |.*住在)(.*?)[.。]",
    "Works at": r"(?:.* works at (.*)\.|.*?在(.*)工作。)",
    "Works as": r"(?:.* works as |.*的工作是)(.*?)[.。]",
    "From": r"(?:.* comes from |.*来自)(.*?)[.。]",
    "Age": r"[^\d]*(\d+)(?: years old\.|岁。)",
    "Dislikes": r"(?:.* dislikes |.*不喜欢)(.*?)[.。]",
    "Likes": r"(?:.* likes |.*喜欢)(.*?)[.。]",
}
NUMBERS = itertools.count(1)
TEXTS = sorted({text for texts, _ in SAID for text in texts} | {text for text, *_ in TOLD[::5]})


@pytest.fixture(scope="module")
def perdure() -> Iterator[Perdure]:
    with Perdure(store=InlineStore()) as perdure:
        yield perdure


def normal(value: str) -> str:
    return re.sub(r"^(?:an?|the) ", "", value.casefold())


def believed(facts: Sequence[str]) -> set[tuple[str, str]]:
    found = set()
    for fact in facts:
        for key, form in KEYS.items():
            if match := re.fullmatch(form, fact):
                found.add((key, normal(next(filter(None, match.groups())))))
                break
    return found


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(said=st.lists(st.tuples(st.sampled_from(TEXTS), st.booleans()), min_size=1, max_size=5))
def test_block_and_graph_say_the_same(perdure: Perdure, said: list[tuple[str, bool]]) -> None:
    """In one batch and in several."""
    agent = perdure.create_agent(f"agent {next(NUMBERS)}")
    for text, extracts in said:
        agent.send(text)
        if extracts:
            agent.facts.extract()
    agent.facts.extract()
    block = agent.blocks.get("human").value
    lines = {tuple(line.split(": ", 1)) for line in block.split("\n") if line.split(":")[0] in KEYS}
    held = [one.fact for one in agent.facts.list() if one.fact.invalid_at is None and one.fact.expired_at is None]
    assert {(key, normal(value)) for key, value in lines} == believed([fact.text for fact in held])
