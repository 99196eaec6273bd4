"""The terminal: what is said goes to stdout, what is told about it beside it; plain text where it is no terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Literal, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from perdure.cli.views.fold import visible

__all__ = ["Terminal", "standard_streams"]

STATUS_AFTER_S = 0.5
PIPE_WIDTH = 1_000  # nobody wraps lines for a pipe

ERASE_LINE = "\r\x1b[2K"


def standard_streams() -> tuple[TextIO, TextIO]:
    """stdout and stderr, which take any text: what their encoding lacks becomes a question mark."""
    streams: list[TextIO] = []
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # closed by whoever started us
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # as long as the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
        streams.append(stream)
    return streams[0], streams[1]


class Terminal:
    """Where a chat is shown.

    Args:
        interactive: a person sits here: notes stand between the words, on `out`; else they go to `err`.
        coloured: None asks the streams and the environment.
    """

    def __init__(self, out: TextIO, err: TextIO, *, interactive: bool, coloured: bool | None = None) -> None:
        self._out, self._err = _console(out, coloured), _console(err, coloured)
        self._notes = self._out if interactive else self._err
        self.interactive = interactive
        # In a pipe nobody watches, and a preview can't be taken back: only what is a fact is written there.
        self.streaming = out.isatty()
        self._line: Literal["words", "thought"] | None = None  # what the unfinished line is
        self._status = _Status(self._notes)

    @property
    def width(self) -> int:
        """Of the notes, in cells."""
        return self._notes.width

    def words(self, piece: str) -> None:
        """Go on with what the agent says."""
        self._write(piece, "words")

    def thought(self, piece: str) -> None:
        """Go on with what the agent thinks."""
        self._write(piece, "thought")

    def end_line(self) -> None:
        """Finish the line that was begun, if one was."""
        self._status.hide()
        if self._line is not None:
            console = self._out if self._line == "words" else self._notes
            console.file.write("\n")
            console.file.flush()
            self._line = None

    def note(self, *notes: RenderableType) -> None:
        """Something about what is said: a tool call, an edit, a greeting."""
        self._print(self._notes, *notes)

    def show(self, *results: RenderableType) -> None:
        """The result of a command."""
        self._print(self._out, *results)

    def hint(self, text: str) -> None:
        """What to do next."""
        self.note(Text(visible(text), style="dim"))

    def error(self, message: str) -> None:
        self._print(self._err, Text.assemble(("error: ", "bold red"), visible(message)))

    def waiting(self, what: str) -> None:
        """Say what is waited for, should it take long; it vanishes with the next output."""
        self._status.arm(what if self._line is None else "")

    def idle(self) -> None:
        """Nothing is waited for any more."""
        self._status.arm("")

    def _write(self, piece: str, kind: Literal["words", "thought"]) -> None:
        if self._line not in (None, kind):
            self.end_line()
        self._status.hide()
        piece = visible(piece)
        if kind == "thought":
            self._notes.out(piece, style="dim italic", highlight=False, end="")
        else:  # not by rich, which would make spaces of tabs
            self._out.file.write(piece)
            self._out.file.flush()
        if piece:
            self._line = None if piece.endswith("\n") else kind

    def _print(self, console: Console, *renderables: RenderableType) -> None:
        self.end_line()
        if console.is_terminal:
            console.print(*renderables, sep="\n")
            return
        with console.capture() as captured:
            console.print(*renderables, sep="\n")
        # Tables fill their cells with spaces, which in a file are only in the way.
        lines = (line.rstrip() for line in captured.get().splitlines())
        console.file.write("".join(f"{line}\n" for line in lines))
        console.file.flush()


class _Status:
    """One dim line that appears when nothing else did for a while. Only where a line can be erased again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lively = console.is_terminal and console.color_system is not None
        self._what, self._shown = "", False
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, what: str) -> None:
        self.hide()
        self._what = what if self._lively else ""
        if self._what:
            self._timer = asyncio.get_running_loop().call_later(STATUS_AFTER_S, self._show)

    def _show(self) -> None:
        self._timer, self._shown = None, True
        self._console.out(self._what, style="dim", highlight=False, end="")

    def hide(self) -> None:
        """Make room for output."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._shown:
            self._shown = False
            self._console.file.write(ERASE_LINE)
            self._console.file.flush()


def _console(stream: TextIO, coloured: bool | None) -> Console:
    """Colours on a terminal that has them and a person who wants them (https://no-color.org), else no escape code."""
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
