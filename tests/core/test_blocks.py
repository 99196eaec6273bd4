"""Blocks as values: labels, edits and diffs."""

from __future__ import annotations

import random
import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.blocks import Block, append_text, check_label, insert_lines, replace_in, replace_text, rewrite
from perdure.core.errors import BlockLimitExceeded, BlockReadOnly, InvalidInput, ToolError
from perdure.core.ids import DEFAULT_ORG, BlockId
from perdure.core.text import line_diff
from perdure.core.text.line_diff import DIFF_STEPS, unified_diff
from perdure.domain.blocks.patches import apply_patch
from perdure.testing.clock import START
from tests.support.strategies import any_text, blocks, effort


@pytest.mark.parametrize("label", ["human", "a", "1", "a/b.c-d_e", "日記", "x" * 100])
def test_labels_that_can_be_used(label: str) -> None:
    """Letters and digits of any script, and a few signs within."""
    assert check_label(label) == label


@pytest.mark.parametrize("label", ["", " ", "a b", "/a", ".a", "-a", "<a>", "a\n", "a\x00", "x" * 101, "é́!"])
def test_labels_that_cannot_be_used(label: str) -> None:
    """White space, markup, a sign at the beginning, too long: they would break the prompt's tags and the paths."""
    with pytest.raises(InvalidInput, match="block label"):
        check_label(label)


@effort(12, 2000)
@given(blocks(), any_text(10), st.integers(-3, 6))
def test_an_edit_keeps_everything_but_the_value(block: Block, text: str, line: int) -> None:
    """Whatever the edit: it is refused with a typed error, or only the value differs."""
    edits: tuple[Callable[[], Block], ...] = (
        lambda: append_text(block, text),
        lambda: insert_lines(block, text, line=line),
        lambda: replace_text(block, block.value[:3], text),
        lambda: rewrite(block, text),
    )
    for edit in edits:
        try:
            edited = edit()
        except (ToolError, InvalidInput):
            continue
        assert not block.read_only
        assert replace(edited, value=block.value) == block


@effort(12, 2000)
@given(blocks().map(lambda block: replace(block, read_only=False)), any_text(10))
def test_inserted_text_stands_on_lines_of_its_own(block: Block, text: str) -> None:
    """At every line there is; taking those lines out again gives the block as it was."""
    lines = block.value.split("\n") if block.value else []
    for line in range(len(lines) + 1):
        new = insert_lines(block, text, line=line).value.split("\n")

        assert new[line : line + text.count("\n") + 1] == text.split("\n")
        assert new[:line] + new[line + text.count("\n") + 1 :] == lines
    assert (
        insert_lines(block, text).value
        == insert_lines(block, text, line=len(lines)).value
        == append_text(block, text).value
    )


def test_a_limit_counts_characters() -> None:
    """Not bytes; the limit itself is allowed."""
    block = Block(
        id=BlockId("block-1"), org_id=DEFAULT_ORG, label="human", limit_chars=3, created_at=START, updated_at=START
    )

    assert rewrite(block, "字🧭e").value == "字🧭e"
    with pytest.raises(BlockLimitExceeded) as caught:
        rewrite(block, "字🧭e!")
    assert (caught.value.size, caught.value.limit) == (4, 3)
    with pytest.raises(BlockReadOnly):
        rewrite(replace(block, read_only=True), "a")


LINES = st.lists(st.sampled_from(["a", "b", "", "c d"]), max_size=8).map("\n".join)


@effort(12, 2000)
@given(LINES, LINES, st.booleans())
def test_a_diff_leads_from_one_value_to_the_other(before: str, after: str, large: bool) -> None:
    """It is empty only for equal values, and a patch otherwise; also where they are too large to look for the lines
    that they share."""
    with patch.object(line_diff, "DIFF_STEPS", 0 if large else DIFF_STEPS):
        diff = unified_diff(before, after)

    assert (diff == "") == (before == after)
    if diff:
        assert diff.startswith("@@ ")
        assert apply_patch(before, diff) == after


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [1, 2, 3, 10, 1_000, 100_000])
def test_a_diff_takes_time_in_proportion_to_its_values(kinds: int) -> None:
    """However often lines repeat and however they are shuffled: a writer makes it while all others wait."""
    lines = [str(number % kinds) for number in range(100_000)]
    shuffled = random.Random(kinds).sample(lines, len(lines))
    began = time.thread_time()

    for count in (100, 300, 1_000, 3_000, 100_000):
        unified_diff("\n".join(lines[:count]), "\n".join(shuffled[:count]))
        unified_diff("\n".join(lines[:count]), "\n".join(str(int(line) * 7 % kinds) for line in lines[:count]))

    assert time.thread_time() - began < 3


def test_lines_that_windows_ended_are_replaced() -> None:
    """A model writes \\n where the block has \\r\\n; what it writes into the block has the block's ends."""
    for ends in ("\r\n", "\n"):  # a model has added the last line
        block = f"Ada\r\ntea{ends}Turin"
        assert replace_in(block, "Ada\ntea\nTurin", "Eva\njam", label="human") == "Eva\r\njam"
    assert replace_in("Ada\r\ntea\r\nTurin", "Ada\ntea", "Eva\njam", label="human") == "Eva\r\njam\r\nTurin"


@pytest.mark.parametrize("text", ["việt", "한글", "café"])
def test_a_text_is_replaced_however_its_marks_are_written(text: str) -> None:
    """macOS writes a letter and its mark apart, a model writes one character."""
    apart = unicodedata.normalize("NFD", f"likes {text} much")
    for value, old in ((apart, text), (unicodedata.normalize("NFC", apart), unicodedata.normalize("NFD", text))):
        block = Block(
            id=BlockId("b"), org_id=DEFAULT_ORG, label="human", value=value, created_at=START, updated_at=START
        )
        assert replace_text(block, old, "tea").value == "likes tea much"
