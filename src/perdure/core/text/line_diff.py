"""Diffs of texts by their lines, in bounded time; and one line of a text through its versions."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

DiffMark = Literal["+", "-", " ", "…"]

DIFF_STEPS = 2_000_000
"""How many steps the library may take for a diff, about 0.1 s: for values of shuffled or repeated lines it takes a
number of steps that grows with their cube, and an edit is made where everybody else waits for it."""
SIMILAR = 0.5
"""From this ratio on, a line is a changed form of the one it replaced, and not a new one."""


def diff_steps(old: Sequence[str], new: Sequence[str]) -> int:
    """How many steps `difflib` takes at most to match these lines."""
    times = Counter(new)
    return sum(times[line] for line in old) * min(len(old), len(new))


def unified_diff(before: str, after: str) -> str:
    """A unified diff of two values without file headers, one line of context; empty when they are equal. Where finding
    the common lines could take long, one hunk holds all from the first changed line to the last."""
    old, new = before.split("\n"), after.split("\n")
    if before == after:
        return ""
    if diff_steps(old, new) > DIFF_STEPS:
        return _one_hunk(old, new)
    return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=1))[2:])


def diff_lines(diff: str) -> Iterator[tuple[DiffMark, str]]:
    """(mark, text) of each line of a unified diff without file headers; a gap between two places is one `…`, with the
    name of the place where the header is one."""
    header = ""
    for number, line in enumerate(diff.split("\n")):
        mark, text = line[:1], line[1:]
        if mark == "@":
            header, name = line, "" if line.startswith("@@ -") else line.strip("@ ")
            if number or name:
                yield "…", name
        elif mark == "-" and text == "" and header.startswith("@@ -1 +"):
            continue  # the block was empty: an empty text counts as one empty line
        elif mark == "+" and text == "" and header.endswith(" +1 @@"):
            continue  # the block is empty now
        elif mark in ("+", "-"):
            yield ("+" if mark == "+" else "-"), text
        else:
            yield " ", text


def _one_hunk(old: Sequence[str], new: Sequence[str]) -> str:
    """Return a diff of one hunk, from the first changed line to the last."""
    shorter = min(len(old), len(new))
    first = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    same = next((index for index in range(shorter - first) if old[-1 - index] != new[-1 - index]), shorter - first)
    above, below = old[max(first - 1, 0) : first], old[len(old) - same :][:1]
    old_part, new_part = old[first : len(old) - same], new[first : len(new) - same]
    around = len(above) + len(below)
    sizes = (_range(first - len(above), around + len(lines)) for lines in (old_part, new_part))
    marks = ((" ", above), ("-", old_part), ("+", new_part), (" ", below))
    return "\n".join(["@@ -{} +{} @@".format(*sizes), *(mark + line for mark, lines in marks for line in lines)])


def _range(first: int, count: int) -> str:
    """Lines from `first`, counted from 0, as a hunk's head has them."""
    return f"{first + 1}" if count == 1 else f"{first + (count > 0)},{count}"


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
