"""One line of a text through its versions."""

from __future__ import annotations

import difflib

from perdure.core.text.line_diff import DIFF_STEPS, diff_steps

SIMILAR = 0.5
"""From this ratio on, a line is a changed form of the one it replaced, and not a new one."""


def find_line_before(before: str, after: str, line: int) -> int | None:
    """Return which line of `before` the line `line` of `after` was, both counted from 0; None: it is new."""
    old, new = before.split("\n"), after.split("\n")
    shorter = min(len(old), len(new))
    first = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    same = next((index for index in range(shorter - first) if old[-1 - index] != new[-1 - index]), shorter - first)
    if line < first:
        return line
    if line >= len(new) - same:
        return line - len(new) + len(old)
    old_part, new_part = old[first : len(old) - same], new[first : len(new) - same]
    if diff_steps(old_part, new_part) > DIFF_STEPS:
        return first + old_part.index(new[line]) if new[line] in old_part else None
    matcher = difflib.SequenceMatcher(None, old_part, new_part, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if j1 <= line - first < j2:
            if tag == "equal":
                return first + i1 + line - first - j1
            if old_part.count(new[line]) >= new_part.count(new[line]):  # it was moved
                return first + old_part.index(new[line])
            place = _find_similar(old_part[i1:i2], new[line])
            return None if place is None else first + i1 + place
    return None


def _find_similar(lines: list[str], line: str) -> int | None:
    """Return the place of the most similar line; None: none is similar."""
    matcher = difflib.SequenceMatcher()
    matcher.set_seq2(line)
    best, found = SIMILAR, None
    for place, other in enumerate(lines):
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() >= best and matcher.quick_ratio() >= best and (ratio := matcher.ratio()) >= best:
            best, found = ratio, place
    return found
