"""Break a text that comes in pieces into lines between its words. Pure; widths are in cells of a terminal."""

from __future__ import annotations

import re

from rich.cells import cell_len

TAB_CELLS = 8

# Scripts without spaces may break after each character, but not before what closes nor after what opens.
_WIDE = "\u2e80-\u30ff\u3100-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
_WIDE += "\U00020000-\U0003fffd"
_CLOSING = "、。，．：；！？）］｝」』】》〉〕〗〙〛ー・々ぁぃぅぇぉっゃゅょァィゥェォッャュョ…—’”％"
_CLOSING += "\u3099\u309a\ufe00-\ufe0f"  # marks on the character before
_OPENING = "（［｛「『【《〈〔〖〘〚“‘"
_TOKEN = re.compile(rf"\n|[^\S\n]+|[{_OPENING}]*[{_WIDE}][{_CLOSING},.!?;:)\]}}%]*|[^\s{_WIDE}]+[{_CLOSING}]*")


class LineWrapper:
    """Keeps the last word back until it is whole. A word that is wider than a line is left to the terminal."""

    def __init__(self) -> None:
        self.column = 0
        """Where the cursor is."""
        self._held = ""  # the last word, which can still grow
        self._space = ""  # before it; dropped where the line breaks
        self._inside = False  # a part of the last word is on the screen

    @property
    def empty(self) -> bool:
        """Whether the cursor is at the beginning of a line, and nothing is kept back."""
        return not (self.column or self._held or self._space)

    def feed(self, piece: str, width: int) -> str:
        """What can be written now."""
        tokens = _TOKEN.findall(self._held + piece)
        self._held, written = "", ""
        for token in tokens[:-1]:
            written += self._place(token, width)
            self._inside = False
        for last in tokens[-1:]:
            if last.isspace() or self._inside or cell_len(last) > width:
                written += self._place(last, width)
                self._inside = not last.isspace()
            else:
                self._held = last
        return written

    def flush(self, width: int) -> str:
        """The word that is kept back; what comes next continues it."""
        token, self._held = self._held, ""
        if not token:
            return self._place_space(width)
        written = self._place(token, width)
        self._inside = True
        return written

    def _place(self, token: str, width: int) -> str:
        """A token with the space or line break before it."""
        if token == "\n":
            gap = self._place_space(width)
            self.column, self._space = 0, ""
            return gap + token
        if token.isspace():
            self._space += token
            return ""
        gap, self._space = self._space, ""
        cells = cell_len(token)
        start = self.column + _gap_cells(gap, self.column)
        if start + cells <= width or self._inside:
            written = gap + token
        else:
            start, written = 0, f"\n{token}" if self.column else token
        end = start + cells
        self.column = end if end <= width else (end - 1) % width + 1
        return written

    def _place_space(self, width: int) -> str:
        """The space at the end of a line, if the line has room for it."""
        gap, end = self._space, self.column + _gap_cells(self._space, self.column)
        if end > width:
            return ""
        self.column, self._space = end, ""
        return gap


def _gap_cells(gap: str, column: int) -> int:
    """The width of spaces and tabs that begin at a column."""
    end = column
    for character in gap:
        end = (end // TAB_CELLS + 1) * TAB_CELLS if character == "\t" else end + cell_len(character)
    return end - column
