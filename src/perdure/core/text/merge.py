"""Taking a change of a text back after the text was changed again: a merge by lines."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.text.line_diff import DIFF_STEPS, diff_steps


@dataclass(frozen=True, slots=True)
class Merge:
    """A merged text. `is_clean`: no place was changed by both; else both forms stand there, between marks."""

    text: str
    is_clean: bool


@dataclass(frozen=True, slots=True)
class _Change:
    """Lines [`first`, `last`) of the base, and what they became."""

    first: int
    last: int
    lines: tuple[str, ...]


def merge_lines(base: str, ours: str, theirs: str) -> Merge:
    """Return `ours` with what changed from `base` to `theirs`.

    Lines that were put right before or behind a changed place are kept; two changes of one line are a conflict, unless
    they are equal.
    """
    if ours == base:
        return Merge(theirs, True)
    if theirs in (base, ours):
        return Merge(ours, True)
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
            merged += ["<<<<<<< now", *forms[0], "=======", *forms[1], ">>>>>>> without the write"]
        place = last
    return Merge("\n".join((*merged, *lines[place:])), is_clean)


def _lines(text: str) -> list[str]:
    """The lines of a text; an empty one has none."""
    return text.split("\n") if text else []


def _changes(base: Sequence[str], other: Sequence[str]) -> list[_Change]:
    """What is different in another text, in order.

    Equal lines at both ends are no part of a change: where a line stands several times, a matcher alone may take
    another one of them for the one that went.
    """
    shorter = min(len(base), len(other))
    first = next((at for at in range(shorter) if base[at] != other[at]), shorter)
    same = next((at for at in range(shorter - first) if base[-1 - at] != other[-1 - at]), shorter - first)
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
    """Take the next changes that touch each other from both lists."""
    groups: tuple[list[_Change], list[_Change]] = ([], [])
    sides = (left, right)
    side = 0 if left and (not right or left[0].first <= right[0].first) else 1
    groups[side].append(sides[side].pop(0))
    end = groups[side][0].last
    while True:
        found = next((at for at in (0, 1) if sides[at] and sides[at][0].first <= end), None)
        if found is None:
            return groups
        groups[found].append(sides[found].pop(0))
        end = max(end, groups[found][-1].last)


def _apply(lines: Sequence[str], first: int, last: int, changes: Sequence[_Change]) -> list[str]:
    """The lines [`first`, `last`) after these changes of them."""
    result: list[str] = []
    for change in changes:
        result += [*lines[first : change.first], *change.lines]
        first = change.last
    return [*result, *lines[first:last]]


def _apply_both(
    lines: Sequence[str], first: int, last: int, left: Sequence[_Change], right: Sequence[_Change]
) -> list[str] | None:
    """The lines after the changes of both sides, where they only touch each other; None: they overlap.

    What is inserted right beside a place that is taken away stays.
    """
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
    return change.first == change.last
