"""What a refused body is told: a bounded number of fields, in time that is linear in the body."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from perdure.server.problems import SECRET_FIELDS, problems_text
from perdure.server.wire.agents import LimitsIn
from perdure.server.wire.base import WireRequest
from tests.server.routed import routed

MANY = 20_000


def wrong(loc: tuple[str | int, ...], value: Any = 0) -> dict[str, Any]:
    return {"type": "string_type", "loc": loc, "msg": "Input should be a valid string", "input": value}


def test_at_most_twenty_fields_are_named() -> None:
    """And how many more there are."""
    text = problems_text([wrong(("body", "tags", number)) for number in range(MANY)])

    assert text.count("Input should be a text") == 20
    assert text.startswith("body.tags.0: Input should be a text, not 0; body.tags.1: ")
    assert text.endswith("; and 19,980 more")


def test_the_work_is_linear_in_the_errors() -> None:
    """Ten times the errors take about ten times the work, not a hundred times; so do those of fields within fields."""

    def cost(number: int) -> float:
        errors = [wrong(("body", f"f{one}", "x", "y")) for one in range(number)]
        errors += [wrong(("body", f"f{one}")) for one in range(number)]
        before = time.thread_time()
        problems_text(errors)
        return time.thread_time() - before

    few, many = (min(cost(number) for _ in range(3)) for number in (MANY // 10, MANY))

    assert many < 40 * few


@pytest.mark.parametrize("value", [[[[0] * 1_000] * 1_000] * 1_000, {"a": ["x" * 10**6] * 10**6}, "y" * 10**7])
def test_only_the_beginning_of_a_value_is_written(value: Any) -> None:
    """Writing all of these would take hours."""
    text = problems_text([wrong(("body", "name"), value)])

    assert text.startswith("body.name: Input should be a text, not ")
    assert len(text) == len("body.name: Input should be a text, not ") + 80


@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=12) | st.integers(), max_size=4),
    st.sampled_from(sorted(SECRET_FIELDS)),
    st.integers(0, 3),
)
def test_no_secret_within_a_value_is_written(others: dict[str, Any], name: str, depth: int) -> None:
    """Wherever it stands in the beginning of the value, however deep."""
    value: Any = {**others, name: "Sesame"}
    for _ in range(depth):
        value = [{"inner": value}]

    text = problems_text([wrong(("body", "name"), value)])

    assert "Ses" not in text
    assert text.isprintable()


def test_a_long_name_of_a_field_is_cut() -> None:
    """It is the client's, and is told in part."""
    assert len(problems_text([wrong(("body", "metadata", "k" * 10**6))])) < 200


class Inner(WireRequest):
    texts: list[str]


class Body(WireRequest):
    texts: list[str] | None = None
    numbers: dict[str, int] | None = None
    inner: list[Inner] | None = None
    either: dict[str, str] | list[Inner] | None = None


@pytest.mark.parametrize(
    "body",
    [
        {"texts": [0] * MANY},
        {"numbers": {f"name{one}": "x" for one in range(MANY)}},
        {"inner": [{}] * MANY},
        {"inner": [{"texts": [0] * MANY}] * MANY},
        {"either": {f"name{one}": 0 for one in range(MANY)}},
    ],
)
def test_few_errors_are_made(body: dict[str, Any]) -> None:
    """Of a list only the first wrong item: the validator would make as many errors as there are items."""
    with pytest.raises(ValidationError) as raised:
        Body.model_validate(body)

    assert raised.value.error_count() <= 2


def test_one_unknown_limit_is_an_error() -> None:
    """A misspelt one is refused by its name, and of many one."""
    with pytest.raises(ValidationError, match="tokens_a_day") as raised:
        LimitsIn.model_validate({"tokens_per_day": 5, "tokens_a_day": 5} | {f"x{one}": 1 for one in range(MANY)})

    assert raised.value.error_count() == 1


async def test_twenty_thousand_wrong_tags_are_refused_at_once() -> None:
    """40 kB once took 40 s, in which nobody was answered."""
    async with routed() as server:
        await server.refused("POST", "/v1/agents/", {"tags": [0]})
        before = time.thread_time()
        status, _ = await server.refused("POST", "/v1/agents/", {"tags": [0] * MANY})

        assert status == 422
        assert time.thread_time() - before < 0.25
