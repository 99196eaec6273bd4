"""Diffs of texts by their lines, in bounded time; one line of a text through its versions; and taking a change of a
text back after the text was changed again, by a merge of lines."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class MergedText:
    """A merged text. `is_clean`: no place was changed on both sides; else such places have both forms, with marks."""

    text: str
    is_clean: bool


@dataclass(frozen=True, slots=True)
class _Change:
    """Lines [`first`, `last`) of the base, and what they became."""

    first: int
    last: int
    lines: tuple[str, ...]


def merge_lines(
    base: str, ours: str, theirs: str, *, names: tuple[str, str] = ("now", "without the write")
) -> MergedText:
    """Return `ours` with what changed from `base` to `theirs`.

    Lines that were put right before or behind a changed place are kept; two changes of one line are a conflict, unless
    they are equal. `names` stand in the marks of a conflict, for `ours` and `theirs`.
    """
    if ours == base:
        return MergedText(theirs, True)
    if theirs in (base, ours):
        return MergedText(ours, True)
    lines = _lines(base)
    left, right = _changes(lines, _lines(ours)), _changes(lines, _lines(theirs))
    merged: list[str] = []
    is_clean, place = True, 0
    while left or right:
        group = _next_group(left, right)
        first = min(one.first for one in (*group[0], *group[1]))
        last = max(one.last for one in (*group[0], *group[1]))
        merged += lines[place:first]
        forms = [_apply(lines, first, last, changes) for changes in group]
        if not group[1] or forms[0] == forms[1]:
            merged += forms[0]
        elif not group[0]:
            merged += forms[1]
        elif (both := _apply_both(lines, first, last, *group)) is not None:
            merged += both
        else:
            is_clean = False
            merged += [f"<<<<<<< {names[0]}", *forms[0], "=======", *forms[1], f">>>>>>> {names[1]}"]
        place = last
    return MergedText("\n".join((*merged, *lines[place:])), is_clean)


def _lines(text: str) -> list[str]:
    """Return the lines of a text; none for an empty text."""
    return text.split("\n") if text else []


def _same_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return (how many lines are equal at the beginning, how many of the others are equal at the end)."""
    shorter = min(len(old), len(new))
    first = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    return first, next((at for at in range(shorter - first) if old[-1 - at] != new[-1 - at]), shorter - first)


def _changes(base: Sequence[str], other: Sequence[str]) -> list[_Change]:
    """Return the changes that make `other` of `base`, in order.

    Equal lines at both ends are no part of a change: where a line stands several times, a matcher alone may take
    another one of them for the one that went.
    """
    first, same = _same_ends(base, other)
    old, new = base[first : len(base) - same], other[first : len(other) - same]
    if not old or not new or diff_steps(old, new) > DIFF_STEPS:
        return [_Change(first, first + len(old), tuple(new))] if old or new else []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        _Change(first + i1, first + i2, tuple(new[j1:j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]


def _next_group(left: list[_Change], right: list[_Change]) -> tuple[list[_Change], list[_Change]]:
    """Remove the next changes that touch each other from both lists, and return them as (left, right)."""
    groups: tuple[list[_Change], list[_Change]] = ([], [])
    sides = (left, right)
    side = 0 if left and (not right or left[0].first <= right[0].first) else 1
    groups[side].append(sides[side].pop(0))
    end = groups[side][0].last
    while True:
        if (found := next((at for at in (0, 1) if sides[at] and sides[at][0].first <= end), None)) is None:
            return groups
        groups[found].append(sides[found].pop(0))
        end = max(end, groups[found][-1].last)


def _apply(lines: Sequence[str], first: int, last: int, changes: Sequence[_Change]) -> list[str]:
    """Return the lines [`first`, `last`) of `lines` after these changes."""
    result: list[str] = []
    for change in changes:
        result += [*lines[first : change.first], *change.lines]
        first = change.last
    return [*result, *lines[first:last]]


def _apply_both(
    lines: Sequence[str], first: int, last: int, left: Sequence[_Change], right: Sequence[_Change]
) -> list[str] | None:
    """Return the lines [`first`, `last`) after the changes of both sides, which may touch; None: they overlap. Lines
    that one side inserts beside a place that the other deletes stay."""
    result: list[str] = []
    before: _Change | None = None
    ordered = sorted((*left, *right), key=lambda one: (one.first, one.last))
    for change in ordered:
        if before is not None and (change.first < before.last or (_is_insertion(before) and _is_insertion(change))):
            return None
        result += [*lines[first : change.first], *change.lines]
        first, before = change.last, change
    return [*result, *lines[first:last]]


def _is_insertion(change: _Change) -> bool:
    """Return whether a change replaces no line of the base."""
    return change.first == change.last


DiffMark = Literal["+", "-", " ", "…"]

DIFF_STEPS = 2_000_000
"""How many steps the library may take for a diff, about 0.1 s: for values of shuffled or repeated lines it takes a
number of steps that grows with their cube, and an edit is made where everybody else waits for it."""
SIMILAR = 0.5
"""From this ratio on, a line is a changed form of the one it replaced, and not a new one."""


def diff_steps(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many steps `difflib` takes at most to match these lines."""
    times = Counter(new)
    return sum(times[line] for line in old) * min(len(old), len(new))


def unified_diff(before: str, after: str) -> str:
    """Return the unified diff of two texts without file headers, with one line of context; empty: they are equal.

    Where finding the common lines could take long, one hunk holds all from the first changed line to the last.
    """
    old, new = before.split("\n"), after.split("\n")
    if before == after:
        return ""
    if diff_steps(old, new) > DIFF_STEPS:
        return _one_hunk(old, new)
    return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=1))[2:])


def diff_lines(diff: str) -> Iterator[tuple[DiffMark, str]]:
    """Yield (mark, text) for each line of a unified diff without file headers. Between two hunks yield (`…`, the
    heading of the next hunk; empty: it has only line numbers)."""
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
    first, same = _same_ends(old, new)
    above, below = old[max(first - 1, 0) : first], old[len(old) - same :][:1]
    old_part, new_part = old[first : len(old) - same], new[first : len(new) - same]
    around = len(above) + len(below)
    sizes = ((first - len(above), around + len(lines)) for lines in (old_part, new_part))
    # Lines are counted from 1, and a count of 1 is left out.
    heads = (f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}" for start, count in sizes)
    marks = ((" ", above), ("-", old_part), ("+", new_part), (" ", below))
    return "\n".join(["@@ -{} +{} @@".format(*heads), *(mark + line for mark, lines in marks for line in lines)])


def find_line_before(before: str, after: str, line: int) -> int | None:
    """Return the number in `before` of line number `line` of `after`, both from 0; None: the line is new."""
    old, new = before.split("\n"), after.split("\n")
    first, same = _same_ends(old, new)
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
    """Return the index of the line that is most similar to `line`; None: none is similar."""
    matcher = difflib.SequenceMatcher()
    matcher.set_seq2(line)
    best, found = SIMILAR, None
    for place, other in enumerate(lines):
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() >= best and matcher.quick_ratio() >= best and (ratio := matcher.ratio()) >= best:
            best, found = ratio, place
    return found
