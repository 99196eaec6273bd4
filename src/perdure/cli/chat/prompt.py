"""The prompt: a line editor with history and completion, for a person at a terminal."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import DummyHistory, FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.utils import is_dumb_terminal

__all__ = ["HISTORY_FILE", "PromptLines"]

HISTORY_FILE = "chat_history"
LEAVE_WITHIN_S = 2.0

# Without it a terminal is asked where its cursor is, and its answer may arrive as typed text while a run is on.
os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")


class PromptLines:
    """`Source` at a terminal. Enter sends, Alt-Enter begins a new line, Ctrl-D or Ctrl-C twice leaves.

    Args:
        folder: where what was typed is kept.
        commands: name with its slash -> what it does.
        hint: tells the person how to leave.
    """

    interactive = True

    def __init__(self, folder: Path, commands: Mapping[str, str], hint: Callable[[str], None]) -> None:
        self._hint = hint
        self.prefills = not is_dumb_terminal()
        self._asking: PromptSession[str] | None = None
        self._interrupted_at = float("-inf")
        self._session: PromptSession[str] = PromptSession(
            "> ",
            multiline=True,
            prompt_continuation="  ",
            history=_History(folder / HISTORY_FILE),
            completer=_Commands(commands),
            complete_while_typing=True,
            reserve_space_for_menu=min(8, len(commands)),
            key_bindings=_keys(),
        )

    async def read(self) -> str | None:
        while True:
            try:
                # SIGINT stays ours: prompt_toolkit would leave no handler behind. Ctrl-C is a key here.
                return await self._session.prompt_async(handle_sigint=False)
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._session.default_buffer.text:  # the line is given up, nothing else
                    self._interrupted_at = float("-inf")
                    continue
                now = time.monotonic()
                if now - self._interrupted_at < LEAVE_WITHIN_S:
                    return None
                self._interrupted_at = now
                self._hint("Ctrl-D or /quit leaves; so does Ctrl-C again")

    async def ask(self, question: str, *, prefill: str = "") -> str | None:
        self._asking = PromptSession(question, history=DummyHistory(), reserve_space_for_menu=0)
        try:
            return await self._asking.prompt_async(default=prefill if self.prefills else "", handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return None
        finally:
            self._asking = None

    def interrupt(self) -> None:
        app = (self._asking or self._session).app
        if app.is_running:
            app.exit(exception=KeyboardInterrupt())


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class _Commands(Completer):
    """The names of commands, while the first word is typed."""

    def __init__(self, commands: Mapping[str, str]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if not typed.startswith("/"):
            return
        for name, help in self._commands.items():
            if name.startswith(typed):
                yield Completion(name, start_position=-len(typed), display_meta=help)


class _History(FileHistory):
    """A history that only its owner can read, and without which the chat goes on."""

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            Path(self.filename).touch(mode=0o600)  # type: ignore[arg-type]  # we gave it a path
            super().store_string(string)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []
