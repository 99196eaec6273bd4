"""Parse patches, the edits that models write as a diff, into hunks; `apply_patch` describes the two notations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from perdure.core.errors import PatchInvalid


@dataclass(frozen=True, slots=True)
class PatchLine:
    """One line of a hunk. A hunk is one place that a patch changes."""

    kind: str  # ' ', '-' or '+'
    text: str
    number: int  # of the line in the patch, from 1
    blank: bool = False  # had not even its ' '


@dataclass(slots=True)
class Hunk:
    """One place of a text to change. It is filled in while the patch is read, and not changed afterwards."""

    number: int  # among the hunks of the patch, from 1
    anchors: tuple[str, ...] = ()
    old_start: int | None = None  # as in `@@ -l,s`; None when there are no numbers
    old_count: int = 0
    after_empty: bool = False  # `@@ -1,0 +2 @@`: below a first line that an empty text, too, may be said to have
    lines: list[PatchLine] = field(default_factory=list)
    old_lines_left: int = 0  # old lines that the numbers promise and that have not been read yet
    adds_file: bool = False
    at_end: bool = False
    old_ends: bool = False  # `\ No newline at end of file` below the last old line
    new_ends: bool = False  # ... and below the last new line

    @property
    def changes(self) -> bool:
        """Whether the hunk changes any line."""
        return self.old != [line.text for line in self.lines if line.kind != "-"]

    @property
    def old(self) -> list[str]:
        """The lines that the text must have at this place: kept and removed lines."""
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


def read_patch(patch: str) -> list[Hunk]:
    """Parse a patch into hunks, outside of its code fence. Raises: PatchInvalid."""
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
    return _PatchReader(lines[:end]).read(first)


class _PatchReader:
    """Turns the lines of a patch into hunks; `_open` is the hunk that takes the next line of text."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._hunks: list[Hunk] = []
        self._open: Hunk | None = None
        self._names: dict[str, str] = {}  # kind of file header -> the one name it may have
        self._adds_file = False
        self._ended = False

    def read(self, first: int) -> list[Hunk]:
        """Parse the lines from `first` on."""
        index = first
        while index < len(self._lines):
            index += self._take(index)
        self._close()
        return self._hunks

    def _take(self, index: int) -> int:
        """Read the header, marker or line at the index `index`; return how many lines that was."""
        line, number = self._lines[index], index + 1
        if header := self._file_header(index):
            self._close()
            names = [name[3:].split("\t")[0].strip() for name in self._lines[index : index + header]]
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

    def _file_header(self, index: int) -> int:
        """Return how many lines of a file header, `---` and `+++`, begin at the index `index`; 0: none.

        `--- x` is a header or the removed line `-- x`. Inside a hunk it is a header only if all three lines of `---`,
        `+++`, `@@` are there and the hunk's own numbers await no further old line.
        """
        kinds = [_header_kind(line) for line in self._lines[index : index + 3]]
        if kinds[0] not in ("---", "+++") or self._ended:
            return 0
        if self._open is not None:
            return 2 if kinds == ["---", "+++", "@@"] and self._open.old_lines_left <= 0 else 0
        if kinds[:2] == ["---", "+++"]:
            return 2
        return 1 if kinds[1:2] == ["@@"] else 0

    def _note_name(self, kind: str, name: str) -> None:
        """Remember the name in a file header. Raises: PatchInvalid: another file was named before."""
        # A model may repeat the header of the one file before each hunk; different notations may spell it differently.
        first = self._names.setdefault(kind, name)
        if first != name:
            raise PatchInvalid(
                f"the patch is for more than one file, {quote_line(first)} and {quote_line(name)}:"
                " one call edits one block; send a patch of its own for each."
            )

    def _read_stars(self, line: str, number: int) -> None:
        """Parse a '*** ...' marker of the apply_patch notation."""
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
                    line, number, f"is not a marker known here: there are {markers} and '*** End Patch'."
                )

    def _read_section(self, line: str, number: int) -> None:
        """Begin a hunk at a line with '@@', which is line `number` of the patch."""
        anchors: tuple[str, ...] = ()
        if self._open is not None and not self._open.lines and self._open.old_start is None:
            anchors, self._open = self._open.anchors, None  # `@@ class A`, then `@@ def f`: one inside the other
        self._close()
        if self._adds_file:
            raise _unreadable_line(line, number, _ADD_ONLY)
        numbers = _NUMBERS.fullmatch(line)
        hunk = Hunk(number=len(self._hunks) + 1, anchors=anchors)
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
        """Add line `number` of the patch to the open hunk; if none is open, begin one."""
        if line.startswith("\\ "):
            if self._open is not None and self._open.lines:
                last = self._open.lines[-1].kind
                self._open.old_ends |= last != "+"
                self._open.new_ends |= last != "-"
            return
        if self._open is None:
            self._open = Hunk(number=len(self._hunks) + 1)
        hunk = self._open
        hunk.adds_file = self._adds_file
        kind = line[0] if line else "+" if hunk.adds_file else " "
        if hunk.adds_file and kind != "+":
            raise _unreadable_line(line, number, _ADD_ONLY)
        if kind not in (" ", "-", "+"):
            raise _unreadable_line(line, number, _NO_KIND)
        hunk.lines.append(PatchLine(kind, line[1:], number, blank=not line))
        hunk.old_lines_left -= kind != "+"

    def _close(self) -> None:
        """End the open hunk. Raises: PatchInvalid: it has no lines."""
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


def _header_kind(line: str) -> str:
    """Return '---', '+++' or '@@' if the line begins with such a marker; empty: another line."""
    return line[:2] if line.startswith("@@") else line[:3] if line[3:4] in ("", " ", "\t") else ""


def _unreadable_line(line: str, number: int, why: str) -> PatchInvalid:
    """Return the error for line `number` of a patch."""
    return PatchInvalid(f"line {number} of the patch, {quote_line(line)}, {why}")


def quote_line(line: str) -> str:
    """Return the start of a line in quotes, for a message."""
    return repr(line[:200])
