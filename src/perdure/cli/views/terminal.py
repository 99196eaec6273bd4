"""The terminal: answers go to stdout, notes beside them; plain text where a stream is no terminal."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Literal, TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from perdure.cli.views.view import fold, visible

STATUS_AFTER_S = 0.5
PIPE_WIDTH = 1_000  # lines for a pipe are not wrapped

ERASE_LINE = "\r\x1b[2K"
TAB_CELLS = 8
# Scripts without spaces may break after each character, but not before what closes nor after what opens.
_WIDE = "\u2e80-\u30ff\u3100-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
_WIDE += "\U00020000-\U0003fffd"
_CLOSING = "、。，．：；！？）］｝」』】》〉〕〗〙〛ー・々ぁぃぅぇぉっゃゅょァィゥェォッャュョ…—’”％"
_CLOSING += "\u3099\u309a\ufe00-\ufe0f"  # marks on the character before
_OPENING = "（［｛「『【《〈〔〖〘〚“‘"
_TOKEN = re.compile(rf"\n|[^\S\n]+|[{_OPENING}]*[{_WIDE}][{_CLOSING},.!?;:)\]}}%]*|[^\s{_WIDE}]+[{_CLOSING}]*")


def standard_streams() -> tuple[TextIO, TextIO]:
    """stdout and stderr; a character that their encoding lacks becomes a question mark."""
    streams: list[TextIO] = []
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # the parent process closed it
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # as long as the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
        streams.append(stream)
    return streams[0], streams[1]


def program() -> str:
    """What starts this program here: its path where `perdure` is not on PATH, as after `make run`."""
    path = Path(sys.argv[0])
    is_elsewhere = path.name == "perdure" and shutil.which("perdure") is None
    return os.path.relpath(path) if is_elsewhere else "perdure"


def name_program(text: str) -> str:
    """The text with each `perdure ...` command written so that it can be typed in this shell."""
    return re.sub(r"`perdure(?=[ `])", lambda _: f"`{program()}", text)


class Terminal:
    """Writes a chat and the results of commands.

    Args:
        interactive: a person chats here: notes go to `out`, between the answers; else to `err`.
        coloured: by default the streams and the environment decide.
    """

    def __init__(self, out: TextIO, err: TextIO, *, interactive: bool, coloured: bool | None = None) -> None:
        self._out, self._err = _console(out, coloured), _console(err, coloured)
        self._notes = self._out if interactive else self._err
        self.interactive = interactive
        # A preview in a pipe can't be taken back, so only facts are written there.
        self.streaming = out.isatty()
        self._line: Literal["words", "thought"] | None = None  # kind of the unfinished line
        self._wrapper = LineWrapper()  # of a terminal
        self._status = _Status(self._notes)

    @property
    def width(self) -> int:
        """The width of the notes, in cells."""
        return self._notes.width

    def end_line(self) -> None:
        """End the unfinished line, if there is one."""
        self._status.hide()
        if self._line is not None:
            self._put_rest(self._line)
            console = self._out if self._line == "words" else self._notes
            console.file.write("\n")
            console.file.flush()
            self._line, self._wrapper = None, LineWrapper()

    def print_note(self, *notes: RenderableType) -> None:
        """Print something about the chat: a tool call, an edit, a greeting."""
        self._print(self._notes, *notes)

    def print(self, *results: RenderableType) -> None:
        """Print the result of a command; a `str` as it is."""
        for result in results:
            if isinstance(result, str):
                self.end_line()
                print(result, file=self._out.file)
            else:
                self._print(self._out, result)

    def page(self, *results: RenderableType) -> None:
        """Print the result of a command; through the pager (PAGER) where it is longer than the screen."""
        if not self.streaming:
            self.print(*results)
            return
        self.end_line()
        os.environ.setdefault("LESS", "-FRX")  # as git: colours pass, and what fits the screen is just printed
        with self._out.pager(styles=self._out.color_system is not None):
            self._out.print(*results, sep="\n")

    def hint(self, text: str) -> None:
        """Print what to do next."""
        self.print_note(Text(visible(name_program(text)), style="dim"))

    def print_error(self, message: str) -> None:
        """Print an error on stderr."""
        self._print(self._err, Text.assemble(("error: ", "bold red"), visible(name_program(message))))

    def show_status(self, text: str) -> None:
        """Show what is going on if it takes long; the next output erases it."""
        if self._line is not None:
            self._put_rest(self._line)
        self._status.set(text if self._line is None else "")

    def clear_status(self) -> None:
        """Erase what `show_status` shows, and end the unfinished line."""
        self._status.set("")
        self.end_line()

    def write(self, piece: str, kind: Literal["words", "thought"]) -> None:
        """Write a piece of the agent's answer ("words") or reasoning ("thought"), on a line of its kind."""
        if self._line not in (None, kind):
            self.end_line()
        self._status.hide()
        piece = visible(piece)
        self._put(self._wrapper.feed(piece, self._line_width(kind)), kind)
        self._line = None if self._wrapper.empty else kind

    def _put_rest(self, kind: Literal["words", "thought"]) -> None:
        """Write the word that is kept back."""
        self._put(self._wrapper.flush(self._line_width(kind)), kind)

    def _line_width(self, kind: Literal["words", "thought"]) -> int:
        """Where lines break, in cells; nowhere in a pipe."""
        return (self._out if kind == "words" else self._notes).width if self.streaming else sys.maxsize

    def _put(self, text: str, kind: Literal["words", "thought"]) -> None:
        """Write a text as it is."""
        if text and kind == "thought":
            self._notes.out(text, style="dim italic", highlight=False, end="")
        elif text:  # rich would turn tabs into spaces
            self._out.file.write(text)
            self._out.file.flush()

    def _print(self, console: Console, *renderables: RenderableType) -> None:
        self.end_line()
        if console.is_terminal:
            console.print(*renderables, sep="\n")
            return
        with console.capture() as capture:
            console.print(*renderables, sep="\n")
        # A table fills its cells with spaces, which don't belong in a file.
        lines = (line.rstrip() for line in capture.get().splitlines())
        console.file.write("".join(f"{line}\n" for line in lines))
        console.file.flush()


class _Status:
    """A dim line that appears after a delay and is erased by the next output; only on terminals that can erase."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._erasable = console.is_terminal and console.color_system is not None
        self._text, self._visible = "", False
        self._timer: asyncio.TimerHandle | None = None

    def set(self, text: str) -> None:
        """Show a text after the delay; an empty one shows nothing."""
        self.hide()
        self._text = text if self._erasable else ""
        if self._text:
            self._timer = asyncio.get_running_loop().call_later(STATUS_AFTER_S, self._draw)

    def _draw(self) -> None:
        self._timer, self._visible = None, True
        # A text of two lines could not be erased.
        line = fold(self._text, self._console.width - 1)
        self._console.out(line, style="dim", highlight=False, end="")

    def hide(self) -> None:
        """Erase the line before other output."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._visible:
            self._visible = False
            self._console.file.write(ERASE_LINE)
            self._console.file.flush()


def _console(stream: TextIO, coloured: bool | None) -> Console:
    """A console; without colours (no terminal, NO_COLOR, a dumb terminal) it writes no escape codes."""
    terminal = stream.isatty()
    if coloured is None:
        coloured = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")
    return Console(
        file=stream,
        force_terminal=coloured,
        color_system="auto" if coloured else None,
        markup=False,
        emoji=False,
        highlight=False,
        width=None if terminal else PIPE_WIDTH,
    )


class LineWrapper:
    """Breaks streamed text into lines between words: it keeps the last word back until that is whole. A word that is
    wider than a line is left to the terminal. Widths and columns are in cells."""

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
        """Take a piece of text, and return what can be written now."""
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
        """Return the word that was kept back, for writing; the next piece continues it."""
        token, self._held = self._held, ""
        if not token:
            return self._place_space(width)
        written = self._place(token, width)
        self._inside = True
        return written

    def _place(self, token: str, width: int) -> str:
        """Return what to write for a token, with the space or line break before it, and move the column."""
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
        """The space before the word to come, if the line has room for it, else nothing."""
        gap, end = self._space, self.column + _gap_cells(self._space, self.column)
        if end > width:
            return ""
        self.column, self._space = end, ""
        return gap


def display_indexes(text: str, width: int) -> list[int]:
    """Return where a terminal of `width` cells shows each character of a line, and the line's end, counted in cells
    from its start. A word that does not fit a row is moved to the next one; spaces at the end of a row take no cell."""
    indexes: list[int] = []
    shift = column = 0
    for match in _TOKEN.finditer(text):
        token, cells = match[0], cell_len(match[0])
        if not token.isspace():
            if column + cells > width >= cells:
                shift, column = shift + width - column, 0
            indexes.extend(range(match.start() + shift, match.end() + shift))
            column = column + cells if column + cells <= width else (column + cells - 1) % width + 1
            continue
        for place in range(match.start(), match.end()):
            indexes.append(place + shift)
            if column < width:
                column += 1
            else:
                shift -= 1
    return [*indexes, len(text) + shift]


def _gap_cells(gap: str, column: int) -> int:
    """The width of spaces and tabs that begin at a column."""
    end = column
    for character in gap:
        end = (end // TAB_CELLS + 1) * TAB_CELLS if character == "\t" else end + cell_len(character)
    return end - column
