"""A text that two people changed at once: what both began with, what each of them wrote, and a merge of the two."""

from __future__ import annotations

from perdure.core.text.line_diff import merge_lines, unified_diff
from perdure.ui.render import Data

MARKS = ("yours", "saved meanwhile")
"""What the marks in a merged text call the two forms of a line that both have changed."""


def three_ways(base: str, theirs: str, mine: str, *, version: int) -> Data:
    """The data of `_conflict.html`: both texts as differences from `base`, and the merged text with whether every place
    of it is certain. `version` is that of `theirs`, against which the next save goes."""
    merged = merge_lines(base, mine, theirs, names=MARKS)
    return {
        "base": base,
        "theirs": unified_diff(base, theirs),
        "mine": unified_diff(base, mine),
        "mine_text": mine,
        "merged": merged.text,
        "is_clean": merged.is_clean,
        "version": version,
    }
