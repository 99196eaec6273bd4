"""Apply patches, the edits that models write as a diff, to the text of one memory block."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from perdure.core.errors import PatchInvalid
from perdure.domain.blocks.patch_hunks import Hunk, quote_line, read_patch


def apply_patch(text: str, patch: str) -> str:
    r"""Apply a patch to the text of one block, all of it or nothing.

    Two notations are read, alone or inside one fenced code block; a CRLF in the patch counts as LF:

    - unified diff: optional file headers; hunks under `@@ -l,s +l,s @@ heading` or a bare `@@`; lines with ' ',
      '-', '+'.
    - the apply_patch notation of Codex: `*** Begin Patch`, `*** Update File: label` (or `*** Add File:` for an empty
      block), sections under `@@ anchor`, lines with ' ', '-', '+', `*** End of File`, `*** End Patch`. The first `@@`
      and the markers around it may be missing.

    The place of a hunk: its old lines (kept and removed), after the last change of the hunk before it. Line numbers
    and `*** End of File` are hints: the nearest place wins; two equally near are an error. Without a hint there must
    be exactly one place, or the first one below an anchor that is unique. White space counts; if nothing matches
    exactly, white space at line ends is ignored. Kept lines stay as they are in the text.

    A hunk of '+' lines only goes to its line number (`-l,0`: after line l), else directly below its anchor, else to the
    end of the text; there a trailing newline stays the last character.

    A text is split at "\n" only, and "" has no lines; a patch that reads "" as one empty line, as
    `core.blocks.line_diff` does, works too. A blank line in a hunk is an empty kept line, at its end it is nothing.
    `\ No newline at end of file` below an added line alone removes the trailing newline; below a removed line alone it
    adds one only if the hunk changes nothing else, because models often forget its counterpart.

    Raises: PatchInvalid: the patch is empty, can't be read, is for more than one file, does not fit or changes nothing.
    Source: GNU diffutils manual, "Detailed Description of Unified Format"; Codex, "apply_patch_tool_instructions.md".
    """
    hunks = read_patch(patch)
    if not any(line.kind != " " for hunk in hunks for line in hunk.lines):
        raise PatchInvalid("the patch changes nothing: it has no line that begins with '-' or '+'.")
    result = _Patcher(text, hunks).result()
    if result == text:
        raise PatchInvalid("the patch changes nothing: the block would be the same after it.")
    return result


class _LineIndex:
    """The lines of a text, each changed by `read` (which may strip white space), searched as one string.

    Every line stands between two newlines there, so that whole lines are found. `str.find` takes linear time whatever
    the text is, `str.rfind` does not (CPython 3.11): backwards means forwards in the reversed string.
    """

    def __init__(self, lines: Sequence[str], read: Callable[[str], str]) -> None:
        self._read = read
        parts = [read(line) for line in lines]
        self._all = "\n".join(["", *parts, ""])
        self._starts = list(accumulate((len(part) + 1 for part in parts), initial=0))  # the newline before each line

    @cached_property
    def _reverse(self) -> str:
        """The whole string backwards; see the class."""
        return self._all[::-1]

    def first(self, wanted: Sequence[str], floor: int) -> int | None:
        """Return the index of the first line, from `floor` on, at which the wanted lines begin; None: there is none."""
        offset = self._all.find(self._needle(wanted), self._starts[floor])
        return None if offset < 0 else bisect_left(self._starts, offset)

    def last(self, wanted: Sequence[str], floor: int, before: int) -> int | None:
        """The index of the last line of [`floor`, `before`) at which the wanted lines begin; None: there is none."""
        needle, size = self._needle(wanted), len(self._all)
        lowest = max(0, size - self._starts[before] - len(needle) + 1)
        offset = self._reverse.find(needle[::-1], lowest, size - self._starts[floor])
        return None if offset < 0 else bisect_left(self._starts, size - offset - len(needle))

    def containing(self, part: str, floor: int) -> int | None:
        """Return the index of the first line from `floor` on that contains `part`; None: there is none."""
        offset = self._all.find(part, self._starts[floor])
        return None if offset < 0 else bisect_right(self._starts, offset) - 1

    def _needle(self, wanted: Sequence[str]) -> str:
        """Return the string to search for, to find these whole lines."""
        return "\n".join(["", *map(self._read, wanted), ""])


class _AnchorMatch(NamedTuple):
    """The first line of the text that matches a hunk's anchor; `is_only_one`: no later line matches it."""

    line: int
    is_only_one: bool


class _Patcher:
    """Carries hunks out on the lines of a text, from top to bottom. Lines count from 0 here, from 1 in messages."""

    def __init__(self, text: str, hunks: Sequence[Hunk]) -> None:
        if text and any(hunk.adds_file for hunk in hunks):
            raise PatchInvalid("'*** Add File' is for an empty block, and this one has text: use '*** Update File'.")
        self._hunks = hunks
        # "" can't be told from one empty line; only the latter reading has a place for old lines.
        has_old_lines = any(hunk.after_empty or line.kind != "+" for hunk in hunks for line in hunk.lines)
        self._lines = text.split("\n") if text or has_old_lines else []
        self._is_empty = not text
        self._exact, self._trimmed, self._stripped = (
            _LineIndex(self._lines, read) for read in (str, str.rstrip, str.strip)
        )
        self._out: list[str] = []
        self._copied = 0  # the lines above it are in `_out`, or removed
        self._last_hunk_end = 0  # the lines above it belong to earlier hunks, their last kept lines included

    def result(self) -> str:
        """Return the text after all hunks. Raises: PatchInvalid."""
        for hunk in self._hunks:
            self._carry_out(hunk, self._place(hunk))
        self._copy_up_to(len(self._lines))
        return "\n".join(self._out)

    def _carry_out(self, hunk: Hunk, index: int) -> None:
        """Apply a hunk that begins at line `index`."""
        for line in hunk.lines:
            if line.kind == " ":
                index += 1  # stays as it is in the text; copied later, so that the next hunk may name it again
                continue
            self._copy_up_to(index)
            if line.kind == "+":
                self._out.append(line.text)
            else:
                index += 1
                self._copied = index
        if hunk.new_ends and not hunk.old_ends and self._lines[index:] == [""]:
            self._copy_up_to(index)
            self._copied = index + 1
        elif hunk.old_ends and not hunk.new_ends and index == len(self._lines) and not hunk.changes:
            self._copy_up_to(index)
            self._out.append("")
        self._last_hunk_end = max(index, self._copied)

    def _copy_up_to(self, end: int) -> None:
        """Copy the lines up to `end` that were neither copied nor removed."""
        self._out.extend(self._lines[self._copied : end])
        self._copied = max(self._copied, end)

    def _place(self, hunk: Hunk) -> int:
        """Return the index of the line at which the hunk applies. Raises: PatchInvalid: none matches, or several."""
        anchor = self._find_anchor(hunk) if hunk.anchors else None
        old = hunk.old
        if not old:
            return self._insertion(hunk, anchor)
        hint = len(self._lines) - len(old) if hunk.at_end else None
        if hint is None and hunk.old_start is not None:
            hint = hunk.old_start - 1
        if anchor is not None:
            # Second: models like to repeat the anchor as the first kept line.
            floors = [max(anchor.line + 1, self._copied), max(anchor.line, self._copied)]
        elif hint is not None:
            floors = [self._copied]
        else:
            # Second: the last kept lines of one hunk are often the first kept lines of the next.
            floors = [self._last_hunk_end, self._copied]
        for view in (self._exact, self._trimmed):
            for floor in floors:
                if hint is not None:
                    line = self._nearest(hunk, view, old, floor, hint)
                else:
                    line = view.first(old, floor)
                    if line is not None and (anchor is None or not anchor.is_only_one):
                        other = view.first(old, line + 1)
                        if other is not None:
                            raise _ambiguous(hunk, line, other)
                if line is not None:
                    return line
        raise self._misfit(hunk, old, floors[0])

    def _nearest(self, hunk: Hunk, view: _LineIndex, old: Sequence[str], floor: int, hint: int) -> int | None:
        """Return the line nearest to `hint`, from `floor` on, at which `old` begins. Raises: PatchInvalid: two are."""
        hint = min(max(hint, floor), len(self._lines))
        below = view.first(old, hint)
        if below == hint:
            return below
        above = view.last(old, floor, hint)
        if above is None or below is None:
            return below if above is None else above
        if above + below == 2 * hint:
            raise _ambiguous(hunk, above, below)
        return above if above + below > 2 * hint else below

    def _insertion(self, hunk: Hunk, anchor: _AnchorMatch | None) -> int:
        """Return the index of the line before which a hunk without old lines is inserted. Raises: PatchInvalid."""
        end = len(self._lines)
        if hunk.old_start is not None and not hunk.at_end:
            # A model that wants to append after n lines says `-n,0` or counts one too far; more than that is a mistake.
            if hunk.old_start > end + 1 and not self._is_empty:
                raise PatchInvalid(
                    f"hunk {hunk.number} adds lines at line {hunk.old_start}, but the block has {end} lines."
                    " Add the line before them as a kept line, with ' ', instead of counting."
                )
            index = min(end, hunk.old_start if hunk.old_count == 0 else max(hunk.old_start - 1, 0))
        elif anchor is not None and not hunk.at_end:
            if not anchor.is_only_one:
                raise PatchInvalid(
                    f"hunk {hunk.number} adds lines below {quote_line(hunk.anchors[-1])}, but that is in the block"
                    " more than once. Add the line before them as a kept line, with ' ', and more lines around it."
                )
            index = anchor.line + 1
        else:
            return max(self._copied, end - 1 if end > 1 and not self._lines[-1] else end)
        if index < self._copied:
            raise PatchInvalid(
                f"hunk {hunk.number} adds lines after line {index} of the block, above the change before it."
                " Put the hunks in the order of the text."
            )
        return index

    def _find_anchor(self, hunk: Hunk) -> _AnchorMatch:
        """Return the line of the hunk's innermost anchor. Raises: PatchInvalid: an anchor is not in the text."""
        floor, place = self._last_hunk_end, None
        for depth, anchor in enumerate(hunk.anchors):
            place = self._find_line(anchor, floor)
            if place is None and not depth:
                place = self._find_line(anchor, 0)  # the heading of the part in which the hunk before was, too
            if place is None:
                raise PatchInvalid(
                    f"hunk {hunk.number} does not fit: the line after '@@', {quote_line(anchor)}, is not in the block"
                    f"{f' below line {floor}' if depth else ''}."
                    " Copy it exactly as it stands there, or write '@@' alone."
                )
            floor = place.line + 1
        assert place is not None  # only called with anchors
        return place

    def _find_line(self, anchor: str, floor: int) -> _AnchorMatch | None:
        """Return the first line from `floor` on that equals the anchor, else the first that contains it, if any."""
        line = self._stripped.first([anchor], floor)
        if line is not None:
            return _AnchorMatch(line, self._stripped.first([anchor], line + 1) is None)
        line = self._exact.containing(anchor, floor)
        return None if line is None else _AnchorMatch(line, self._exact.containing(anchor, line + 1) is None)

    def _misfit(self, hunk: Hunk, old: Sequence[str], floor: int) -> PatchInvalid:
        """Return the error for old lines that are nowhere from `floor` on; it tells a model how to repair the patch."""
        start = f"hunk {hunk.number} does not fit: "
        if self._is_empty:
            return PatchInvalid(
                f"{start}the block is empty, so {quote_line(old[0])} is not in it."
                " To write its first lines, send '+' lines only."
            )
        elsewhere = self._trimmed.first(old, 0)
        if elsewhere is not None:
            return PatchInvalid(
                f"{start}its lines stand at line {elsewhere + 1} of the block, above the end of the hunk or the '@@'"
                " line before it. Put the hunks in the order of the text, each change once."
            )
        # How many of the first lines stand there one after another.
        matching_count = bisect_left(
            range(1, len(old)), True, key=lambda n: self._trimmed.first(old[:n], floor) is None
        )
        wrong = [line for line in hunk.lines if line.kind != "+"][matching_count]
        what = f"line {wrong.number} of the patch, {quote_line(wrong.text)}, "
        if self._trimmed.first([wrong.text], 0) is not None:
            if matching_count:
                what += f"does not follow {quote_line(old[matching_count - 1])} in the block"
            else:
                what += f"is not in the block below line {floor}"
        else:
            what += "is not in the block"
            similar = self._stripped.first([wrong.text], 0) if wrong.text.strip() else None
            if similar is not None:
                what += f"; line {similar + 1} there differs in white space: {quote_line(self._lines[similar])}"
        return PatchInvalid(
            f"{start}{what}."
            " Copy the lines to keep and to remove exactly as they stand in the block, white space included."
        )


def _ambiguous(hunk: Hunk, one: int, other: int) -> PatchInvalid:
    """Return the error for a hunk that fits at two lines, `one` and `other`."""
    return PatchInvalid(
        f"hunk {hunk.number} fits in more than one place, such as lines {one + 1} and {other + 1} of the block."
        " Add more of the lines around the change, with ' ', so that it is unique."
    )
