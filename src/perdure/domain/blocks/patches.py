"""Apply patches, the edits that models write as a diff, to the text of one memory block.

`_Reader` turns the two notations into hunks; `_Patcher` applies hunks to a text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from perdure.core.errors import PatchInvalid


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
    `core.blocks.diff_of` does, works too. A blank line in a hunk is an empty kept line, at its end it is nothing.
    `\ No newline at end of file` below an added line alone removes the trailing newline; below a removed line alone it
    adds one only if the hunk changes nothing else, because models often forget its counterpart.

    Raises: PatchInvalid: the patch is empty, can't be read, is for more than one file, does not fit or changes nothing.
    Source: GNU diffutils manual, "Detailed Description of Unified Format"; Codex, "apply_patch_tool_instructions.md".
    """
    hunks = _read(patch)
    if not any(line.kind != " " for hunk in hunks for line in hunk.lines):
        raise PatchInvalid("the patch changes nothing: it has no line that begins with '-' or '+'.")
    result = _Patcher(text, hunks).result()
    if result == text:
        raise PatchInvalid("the patch changes nothing: the block would be the same after it.")
    return result


@dataclass(frozen=True, slots=True)
class _Line:
    kind: str  # ' ', '-' or '+'
    text: str
    number: int  # of the line in the patch, from 1
    blank: bool = False  # had not even its ' '


@dataclass(slots=True)
class _Hunk:
    """One place to change. Mutable while it is read, left alone afterwards."""

    number: int  # among the hunks of the patch, from 1
    anchors: tuple[str, ...] = ()
    old_start: int | None = None  # as in `@@ -l,s`; None when there are no numbers
    old_count: int = 0
    after_empty: bool = False  # `@@ -1,0 +2 @@`: below a first line that an empty text, too, may be said to have
    lines: list[_Line] = field(default_factory=list)
    old_lines_left: int = 0  # old lines that the numbers promise and that have not been read yet
    adds_file: bool = False
    at_end: bool = False
    old_ends: bool = False  # `\ No newline at end of file` below the last old line
    new_ends: bool = False  # ... and below the last new line

    @property
    def changes(self) -> bool:
        return self.old != [line.text for line in self.lines if line.kind != "-"]

    @property
    def old(self) -> list[str]:
        return [line.text for line in self.lines if line.kind != "+"]


_NUMBERS = re.compile(
    r"@@\s*-(?P<start>[0-9]{1,9})(?:,(?P<count>[0-9]{1,9}))?\s+\+(?P<new>[0-9]{1,9})(?:,[0-9]{1,9})?\s*(?:@@(?s:.*))?"
)
_GIT_HEADER = re.compile(
    r"index [0-9a-f]+\.\.|(?:old|new|new file|deleted file) mode [0-9]"
    r"|(?:dis)?similarity index |(?:rename|copy) (?:from|to) "
)
_STARS = re.compile(
    r"\*\*\* (?P<what>Begin Patch|End Patch|End of File|Move to|(?:Update|Add|Delete) File)\s*(?::(?P<name>.*))?",
    re.IGNORECASE | re.DOTALL,
)
_ADD_ONLY = "does not belong under '*** Add File': there every line begins with '+'."
_NO_KIND = "can't be read: in a hunk a line begins with ' ' (keep), '-' (remove) or '+' (add), a hunk with '@@'."
_FENCE = re.compile(r"\s*(?P<ticks>`{3,}|~{3,})[^`]*")


def _read(patch: str) -> list[_Hunk]:
    if not patch.strip():
        raise PatchInvalid("the patch is empty: send a unified diff, or lines that begin with ' ', '-' or '+'.")
    lines = patch.replace("\r\n", "\n").split("\n")
    first, end = 0, len(lines)
    while not lines[end - 1]:
        end -= 1
    while not lines[first]:
        first += 1
    fence = _FENCE.fullmatch(lines[first])
    if fence is not None and end - first > 1 and lines[end - 1].strip() == fence["ticks"]:
        first, end = first + 1, end - 1
    return _Reader(lines[:end]).read(first)


class _Reader:
    """Turns the lines of a patch into hunks; `_open` is the hunk that takes the next line of text."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._hunks: list[_Hunk] = []
        self._open: _Hunk | None = None
        self._names: dict[str, str] = {}  # kind of file header -> the one name it may have
        self._adds_file = False
        self._ended = False

    def read(self, first: int) -> list[_Hunk]:
        at = first
        while at < len(self._lines):
            at += self._take(at)
        self._close()
        return self._hunks

    def _take(self, at: int) -> int:
        """Read what stands at `at`; how many lines that were."""
        line, number = self._lines[at], at + 1
        if header := self._file_header(at):
            self._close()
            names = [name[3:].split("\t")[0].strip() for name in self._lines[at : at + header]]
            self._note_name("+++", names[0] if names[-1] == "/dev/null" else names[-1])
            return header
        if self._ended and not line.lower().startswith("*** begin patch"):
            if line.strip():
                raise _unreadable_line(line, number, "stands after '*** End Patch': put every change before it.")
        elif line.startswith("*** "):
            self._read_stars(line, number)
        elif line.startswith("@@"):
            self._read_section(line, number)
        elif line.startswith("diff -"):
            self._close()
            self._note_name("diff", line)
        elif self._open is None and (not line or _GIT_HEADER.match(line)):
            pass
        else:
            self._read_text(line, number)
        return 1

    def _file_header(self, at: int) -> int:
        """How many lines of a `---`, `+++` header begin here.

        `--- x` is a header or the removed line `-- x`. Inside a hunk it is a header only if all three lines of `---`,
        `+++`, `@@` are there and the hunk's own numbers await no further old line.
        """
        kinds = [_header_kind(line) for line in self._lines[at : at + 3]]
        if kinds[0] not in ("---", "+++") or self._ended:
            return 0
        if self._open is not None:
            return 2 if kinds == ["---", "+++", "@@"] and self._open.old_lines_left <= 0 else 0
        if kinds[:2] == ["---", "+++"]:
            return 2
        return 1 if kinds[1:2] == ["@@"] else 0

    def _note_name(self, kind: str, name: str) -> None:
        # A model may repeat the header of the one file before each hunk; different notations may spell it differently.
        known = self._names.setdefault(kind, name)
        if known != name:
            raise PatchInvalid(
                f"the patch is for more than one file, {_quote(known)} and {_quote(name)}:"
                " one call edits one block; send a patch of its own for each."
            )

    def _read_stars(self, line: str, number: int) -> None:
        marker = _STARS.fullmatch(line.rstrip())
        what = marker["what"].lower() if marker is not None else ""
        name = (marker["name"] or "").strip() if marker is not None else ""
        if what == "end of file":
            if self._open is not None:
                self._open.at_end = True
            self._close()
            return
        self._close()
        match what:
            case "begin patch" | "end patch":
                self._ended = what == "end patch"
                self._adds_file = False
            case "update file" | "add file":
                self._note_name("***", name)
                self._adds_file = what == "add file"
            case "delete file":
                why = "can't be done: a patch deletes no block, it can remove all lines with '-'."
                raise _unreadable_line(line, number, why)
            case "move to":
                raise _unreadable_line(line, number, "can't be done: a patch renames no block. Leave the line out.")
            case _:
                markers = "'*** Begin Patch', '*** Update File: label', '*** Add File: label', '*** End of File'"
                raise _unreadable_line(
                    line, number, f"is no marker known here: there are {markers} and '*** End Patch'."
                )

    def _read_section(self, line: str, number: int) -> None:
        anchors: tuple[str, ...] = ()
        if self._open is not None and not self._open.lines and self._open.old_start is None:
            anchors, self._open = self._open.anchors, None  # `@@ class A`, then `@@ def f`: one inside the other
        self._close()
        if self._adds_file:
            raise _unreadable_line(line, number, _ADD_ONLY)
        numbers = _NUMBERS.fullmatch(line)
        hunk = _Hunk(number=len(self._hunks) + 1, anchors=anchors)
        if numbers is not None:
            hunk.old_start, hunk.old_count = int(numbers["start"]), int(numbers["count"] or 1)
            hunk.old_lines_left = hunk.old_count
            hunk.after_empty = (hunk.old_start, hunk.old_count, int(numbers["new"])) == (1, 0, 2)
        else:
            anchor = line[2:].strip().removesuffix("@@").strip()
            if anchor.strip(".…"):  # `@@ ... @@` is how some models write a bare `@@`
                hunk.anchors = (*anchors, anchor)
        self._open = hunk

    def _read_text(self, line: str, number: int) -> None:
        if line.startswith("\\ "):
            if self._open is not None and self._open.lines:
                last = self._open.lines[-1].kind
                self._open.old_ends |= last != "+"
                self._open.new_ends |= last != "-"
            return
        if self._open is None:
            self._open = _Hunk(number=len(self._hunks) + 1)
        hunk = self._open
        hunk.adds_file = self._adds_file
        kind = line[0] if line else "+" if hunk.adds_file else " "
        if hunk.adds_file and kind != "+":
            raise _unreadable_line(line, number, _ADD_ONLY)
        if kind not in (" ", "-", "+"):
            raise _unreadable_line(line, number, _NO_KIND)
        hunk.lines.append(_Line(kind, line[1:], number, blank=not line))
        hunk.old_lines_left -= kind != "+"

    def _close(self) -> None:
        hunk, self._open = self._open, None
        if hunk is None:
            return
        # What is blank before the next header or the end is layout. If it was a kept line, dropping it changes nothing.
        while hunk.lines and hunk.lines[-1].blank:
            hunk.lines.pop()
        if not hunk.lines:
            raise PatchInvalid(
                f"hunk {hunk.number} of the patch has no lines: after '@@' come lines that begin with ' ', '-' or '+'."
            )
        self._hunks.append(hunk)


class _View:
    """The lines of a text under one reading of white space, searched as one string.

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
        return self._all[::-1]

    def first(self, wanted: Sequence[str], floor: int) -> int | None:
        """The first line, at `floor` or below, where the wanted lines begin."""
        at = self._all.find(self._needle(wanted), self._starts[floor])
        return None if at < 0 else bisect_left(self._starts, at)

    def last(self, wanted: Sequence[str], floor: int, before: int) -> int | None:
        """The last line, at `floor` or below, yet above `before`, where the wanted lines begin."""
        needle, size = self._needle(wanted), len(self._all)
        lowest = max(0, size - self._starts[before] - len(needle) + 1)
        at = self._reverse.find(needle[::-1], lowest, size - self._starts[floor])
        return None if at < 0 else bisect_left(self._starts, size - at - len(needle))

    def containing(self, part: str, floor: int) -> int | None:
        """The first line, at `floor` or below, with `part` in it; `part` has no newline and is not empty."""
        at = self._all.find(part, self._starts[floor])
        return None if at < 0 else bisect_right(self._starts, at) - 1

    def _needle(self, wanted: Sequence[str]) -> str:
        return "\n".join(["", *map(self._read, wanted), ""])


class _Anchor(NamedTuple):
    line: int
    is_only_one: bool


class _Patcher:
    """Carries hunks out on the lines of a text, from top to bottom. Lines count from 0 here, from 1 in messages."""

    def __init__(self, text: str, hunks: Sequence[_Hunk]) -> None:
        if text and any(hunk.adds_file for hunk in hunks):
            raise PatchInvalid("'*** Add File' is for an empty block, and this one has text: use '*** Update File'.")
        self._hunks = hunks
        # "" can't be told from one empty line; only the latter reading has a place for old lines.
        has_old_lines = any(hunk.after_empty or line.kind != "+" for hunk in hunks for line in hunk.lines)
        self._lines = text.split("\n") if text or has_old_lines else []
        self._is_empty = not text
        self._exact, self._trimmed, self._stripped = (_View(self._lines, read) for read in (str, str.rstrip, str.strip))
        self._out: list[str] = []
        self._copied = 0  # the lines above it are in `_out`, or removed
        self._last_hunk_end = 0  # the lines above it belong to earlier hunks, their last kept lines included

    def result(self) -> str:
        for hunk in self._hunks:
            self._carry_out(hunk, self._place(hunk))
        self._copy_up_to(len(self._lines))
        return "\n".join(self._out)

    def _carry_out(self, hunk: _Hunk, at: int) -> None:
        for line in hunk.lines:
            if line.kind == " ":
                at += 1  # stays as it is in the text; copied later, so that the next hunk may name it again
                continue
            self._copy_up_to(at)
            if line.kind == "+":
                self._out.append(line.text)
            else:
                at += 1
                self._copied = at
        if hunk.new_ends and not hunk.old_ends and self._lines[at:] == [""]:
            self._copy_up_to(at)
            self._copied = at + 1
        elif hunk.old_ends and not hunk.new_ends and at == len(self._lines) and not hunk.changes:
            self._copy_up_to(at)
            self._out.append("")
        self._last_hunk_end = max(at, self._copied)

    def _copy_up_to(self, end: int) -> None:
        self._out.extend(self._lines[self._copied : end])
        self._copied = max(self._copied, end)

    def _place(self, hunk: _Hunk) -> int:
        """The line at which the hunk begins."""
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

    def _nearest(self, hunk: _Hunk, view: _View, old: Sequence[str], floor: int, hint: int) -> int | None:
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

    def _insertion(self, hunk: _Hunk, anchor: _Anchor | None) -> int:
        """Where a hunk without old lines goes."""
        end = len(self._lines)
        if hunk.old_start is not None and not hunk.at_end:
            # A model that wants to append after n lines says `-n,0` or counts one too far; more than that is a mistake.
            if hunk.old_start > end + 1 and not self._is_empty:
                raise PatchInvalid(
                    f"hunk {hunk.number} adds lines at line {hunk.old_start}, but the block has {end} lines."
                    " Add the line before them as a kept line, with ' ', instead of counting."
                )
            at = min(end, hunk.old_start if hunk.old_count == 0 else max(hunk.old_start - 1, 0))
        elif anchor is not None and not hunk.at_end:
            if not anchor.is_only_one:
                raise PatchInvalid(
                    f"hunk {hunk.number} adds lines below {_quote(hunk.anchors[-1])}, but that is in the block"
                    " more than once. Add the line before them as a kept line, with ' ', and more lines around it."
                )
            at = anchor.line + 1
        else:
            return max(self._copied, end - 1 if end > 1 and not self._lines[-1] else end)
        if at < self._copied:
            raise PatchInvalid(
                f"hunk {hunk.number} adds lines after line {at} of the block, above the change before it."
                " Put the hunks in the order of the text."
            )
        return at

    def _find_anchor(self, hunk: _Hunk) -> _Anchor:
        floor, place = self._last_hunk_end, None
        for depth, anchor in enumerate(hunk.anchors):
            place = self._find_line(anchor, floor)
            if place is None and not depth:
                place = self._find_line(anchor, 0)  # the heading of the part in which the hunk before was, too
            if place is None:
                raise PatchInvalid(
                    f"hunk {hunk.number} does not fit: the line after '@@', {_quote(anchor)}, is not in the block"
                    f"{f' below line {floor}' if depth else ''}."
                    " Copy it exactly as it stands there, or write '@@' alone."
                )
            floor = place.line + 1
        assert place is not None  # only called with anchors
        return place

    def _find_line(self, anchor: str, floor: int) -> _Anchor | None:
        line = self._stripped.first([anchor], floor)
        if line is not None:
            return _Anchor(line, self._stripped.first([anchor], line + 1) is None)
        line = self._exact.containing(anchor, floor)
        return None if line is None else _Anchor(line, self._exact.containing(anchor, line + 1) is None)

    def _misfit(self, hunk: _Hunk, old: Sequence[str], floor: int) -> PatchInvalid:
        """Why the old lines stand nowhere at `floor` or below, said so that the model can repair it."""
        start = f"hunk {hunk.number} does not fit: "
        if self._is_empty:
            return PatchInvalid(
                f"{start}the block is empty, so {_quote(old[0])} is not in it."
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
        what = f"line {wrong.number} of the patch, {_quote(wrong.text)}, "
        if self._trimmed.first([wrong.text], 0) is not None:
            if matching_count:
                what += f"does not follow {_quote(old[matching_count - 1])} in the block"
            else:
                what += f"is not in the block below line {floor}"
        else:
            what += "is not in the block"
            similar = self._stripped.first([wrong.text], 0) if wrong.text.strip() else None
            if similar is not None:
                what += f"; line {similar + 1} there differs in white space: {_quote(self._lines[similar])}"
        return PatchInvalid(
            f"{start}{what}."
            " Copy the lines to keep and to remove exactly as they stand in the block, white space included."
        )


def _header_kind(line: str) -> str:
    return line[:2] if line.startswith("@@") else line[:3] if line[3:4] in ("", " ", "\t") else ""


def _unreadable_line(line: str, number: int, why: str) -> PatchInvalid:
    return PatchInvalid(f"line {number} of the patch, {_quote(line)}, {why}")


def _ambiguous(hunk: _Hunk, one: int, other: int) -> PatchInvalid:
    return PatchInvalid(
        f"hunk {hunk.number} fits in more than one place, such as lines {one + 1} and {other + 1} of the block."
        " Add more of the lines around the change, with ' ', so that it is unique."
    )


def _quote(line: str) -> str:
    return repr(line[:200])
