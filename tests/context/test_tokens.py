"""The token estimate: high enough for what people write, and well-behaved."""

from __future__ import annotations

import pytest
from hypothesis import given

from perdure.context.tokens import ScriptTokenCounter
from perdure.testing.strategies import any_text, effort

COUNTER = ScriptTokenCounter()

# (text, tokens in cl100k_base), the first ones as counted in OpenAI's cookbook and documentation.
COUNTED = (
    ("tiktoken is great!", 6),
    ("antidisestablishmentarianism", 6),
    ("お誕生日おめでとう", 9),
    ("hello world", 2),
    ("Hello, how are you doing today?", 8),
    ("你好", 2),
)


@pytest.mark.parametrize(("text", "tokens"), COUNTED)
def test_the_estimate_is_not_below_the_count(text: str, tokens: int) -> None:
    """For texts whose tokens are known, and less than four times as high."""
    assert tokens <= COUNTER.count(text) < 4 * tokens + 4


@effort(80, 3000)
@given(any_text(), any_text())
def test_a_longer_text_is_never_estimated_lower(one: str, other: str) -> None:
    """A text has at least the tokens of its parts, and at most their sum: estimates of messages can be added up."""
    whole = COUNTER.count(one + other)

    assert max(COUNTER.count(one), COUNTER.count(other)) <= whole
    assert whole <= COUNTER.count(one) + COUNTER.count(other)


@effort(50, 2000)
@given(any_text())
def test_only_nothing_costs_nothing(text: str) -> None:
    """Every character counts, also those that no encoding allows."""
    assert (COUNTER.count(text) == 0) == (text == "")


def test_scripts_weigh_differently() -> None:
    """A Chinese character is more than an ASCII one, an emoji more still."""
    assert COUNTER.count("a" * 100) == 40
    assert COUNTER.count("字" * 100) == 150
    assert COUNTER.count("🧭" * 100) == 200
    assert COUNTER.count("a" * 50 + "字" * 50) == 95
