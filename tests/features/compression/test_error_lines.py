"""Whatever a tool returns, and however long it is: the error in it is shown, with both ends and a handle."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context import compress
from perdure.context.sections.tokens import ScriptTokenCounter
from tests.support.error_outputs import ERROR_OUTPUTS, ERRORS
from tests.support.strategies import effort

FULL = os.environ.get("PERDURE_FAULTS") == "full"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ERROR_OUTPUTS)
def test_the_error_is_shown_within_the_budget(kind: str) -> None:
    """In outputs of every kind, at any place, for any budget that holds a few lines, in tokens or in characters."""

    @effort(few=4, many=400)
    @given(
        st.integers(0, 2**32), st.integers(100, 1_500), st.floats(0, 1, exclude_max=True), st.sampled_from(ERRORS),
        st.integers(600, 4_000), st.sampled_from([ScriptTokenCounter().count, len]),
    )  # fmt: skip
    def check(seed: int, size: int, place: float, error: str, budget: int, count: Callable[[str], int]) -> None:
        text = ERROR_OUTPUTS[kind](random.Random(seed), size, int(place * size), error)
        short = compress(text, budget=budget, count=count)
        lines = [line for line in text.split("\n") if line.strip()]

        assert error in short.text
        assert count(short.text) <= budget
        if short.form == "short":
            assert f'context_expand("{short.handle}"' in short.text
            ends = {"page": (), "records": ("r-0", f"r-{size - 1}")}.get(kind, (lines[0][:20], lines[-1][-20:]))
            if len(lines) > 3 and kind not in ("csv", "ndjson", "map", "mixed"):  # the ends of these are parts
                assert all(end in short.text for end in ends)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ERROR_OUTPUTS)
def test_the_error_is_shown_if_nobody_gives_a_budget(kind: str) -> None:
    """The default leaves no error out either."""
    for seed in range(3 if FULL else 1):
        random_ = random.Random(seed)
        text = ERROR_OUTPUTS[kind](random_, 3_000, random_.randrange(3_000), ERRORS[seed])

        assert ERRORS[seed] in compress(text).text


@pytest.mark.slow
def test_an_output_of_parts_shows_its_error_in_a_small_room() -> None:
    """Each part's share of the room may be too small for a line: then all share one room."""
    for seed in range(100 if FULL else 25):
        random_ = random.Random(seed)
        size, error = random_.randint(100, 1_500), random_.choice(ERRORS)
        text = ERROR_OUTPUTS["mixed"](random_, size, random_.randrange(size), error)
        short = compress(text, budget=600, count=len)

        assert error in short.text
        assert len(short.text) <= 600


def test_a_form_within_the_budget_may_have_more_characters_than_the_text() -> None:
    """Chinese takes more tokens for a character than the note about what is left out."""
    count = ScriptTokenCounter().count
    text = ERROR_OUTPUTS["Chinese"](random.Random(0), 100, 0, ERRORS[0])
    short = compress(text, budget=count(text) - 70, count=count)

    assert ERRORS[0] in short.text
    assert count(short.text) <= count(text) - 70


def test_an_error_in_a_long_line_is_shown_to_its_end() -> None:
    """It is parted where its words end, into parts of which each may tell of an error."""
    for seed in range(60 if FULL else 15):
        random_ = random.Random(seed)
        error = random_.choice(ERRORS)
        text = ERROR_OUTPUTS["Chinese, one line"](random_, 100, random_.randrange(100), error)

        assert error in compress(text, budget=600, count=len).text
