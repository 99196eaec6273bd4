"""The prompt: a line editor with history and completion, for a person at a terminal."""

from __future__ import annotations

import contextlib
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.formatted_text.base import OneStyleAndTextTuple
from prompt_toolkit.history import DummyHistory, FileHistory
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.utils import is_dumb_terminal

from perdure.cli.views.terminal import display_indexes
from perdure.core.forgetting.redaction import Redactor

HISTORY_FILE = "chat_history"
DOUBLE_INTERRUPT_S = 2.0
PROMPT = "> "

# Otherwise the terminal is asked for its cursor position, and its answer can arrive as typed text during a run.
os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")


def remove_typed(folder: Path, text: str) -> None:
    """Remove the entries that contain a text from the history file of the chat in a folder. Raises: OSError."""
    file, redactor = folder / HISTORY_FILE, Redactor(text)
    entries = list(_History(file).load_history_strings())[::-1]
    others = [entry for entry in entries if not redactor.finds(entry)]
    if len(others) < len(entries):
        rewritten = _History(file.with_name(f"{HISTORY_FILE}.new"))
        Path(rewritten.filename).write_text("")  # type: ignore[arg-type]  # we gave it a path
        for entry in others:
            rewritten.store_string(entry)
        Path(rewritten.filename).replace(file)  # type: ignore[arg-type]


class PromptLines:
    """`TextSource` at a terminal. Enter sends, Alt-Enter begins a new line, Ctrl-D or Ctrl-C twice leaves.

    Args:
        folder: of the history file.
        commands: name with its slash -> what it does.
        hint: shows the person how to leave.
    """

    interactive = True

    def __init__(self, folder: Path, commands: Mapping[str, str], hint: Callable[[str], None]) -> None:
        self._hint = hint
        self.prefills = not is_dumb_terminal()
        self._question: PromptSession[str] | None = None
        self._interrupted_at = float("-inf")
        self._keys: list[KeyPress] = []  # typed while nothing was read
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            input_processors=[_WordWrap()],
            history=_History(folder / HISTORY_FILE),
            completer=WordCompleter(list(commands), meta_dict=commands, sentence=True),
            complete_while_typing=True,
            reserve_space_for_menu=min(8, len(commands)),
            key_bindings=_keys(),
        )

    async def read(self) -> str | None:
        """Return the next message; None at the end of input, or after a double Ctrl-C."""
        while True:
            try:
                keys, self._keys = self._keys, []
                store_typeahead(self._session.input, keys)
                # prompt_toolkit would remove our handler of SIGINT. Ctrl-C is a key here.
                return await self._session.prompt_async(handle_sigint=False)
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._session.default_buffer.text:  # only the line is given up
                    self._interrupted_at = float("-inf")
                    continue
                now = time.monotonic()
                if now - self._interrupted_at < DOUBLE_INTERRUPT_S:
                    return None
                self._interrupted_at = now
                self._hint("Ctrl-D or /quit leaves; so does Ctrl-C again")
            finally:
                self._mark_pastes(True)

    async def ask(self, question: str, *, prefill: str = "") -> str | None:
        self._question = PromptSession(question, history=DummyHistory(), reserve_space_for_menu=0)
        try:
            return await self._question.prompt_async(default=prefill if self.prefills else "", handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return None
        finally:
            self._question = None
            self._mark_pastes(True)

    @contextlib.contextmanager
    def keep_keys(self, interrupt: Callable[[], None]) -> Iterator[None]:
        source = self._session.input

        def keep() -> None:
            for key in source.read_keys():
                if key.key == Keys.ControlC:
                    interrupt()
                else:
                    self._keys.append(key)

        # A terminal that echoes would put the keys into the answer. A prompt takes the input over while it runs.
        with source.raw_mode(), source.attach(keep):
            self._mark_pastes(True)
            try:
                yield
            finally:
                self._mark_pastes(False)

    def _mark_pastes(self, wanted: bool) -> None:
        """Turn the terminal's marking of pastes on or off, so that a pasted text is one message."""
        output = self._session.output
        if self.prefills:
            (output.enable_bracketed_paste if wanted else output.disable_bracketed_paste)()
            output.flush()

    def interrupt(self) -> None:
        app = (self._question or self._session).app
        if app.is_running:
            app.exit(exception=KeyboardInterrupt())


def _keys() -> KeyBindings:
    """The keys of the prompt: Enter sends, Alt-Enter begins a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class _WordWrap(Processor):
    """Shows a line that is longer than a row broken between its words; prompt_toolkit breaks inside them."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = explode_text_fragments(transformation_input.fragments)
        width = max(1, transformation_input.width - len(PROMPT))
        indexes = display_indexes(fragment_list_to_text(fragments), width)
        shown: list[OneStyleAndTextTuple] = [("", " ")] * (max(indexes[:-1], default=-1) + 1)
        for index, fragment in zip(indexes, fragments, strict=False):
            shown[index] = fragment
        return Transformation(
            shown,
            source_to_display=lambda place: indexes[min(place, len(indexes) - 1)],
            display_to_source=lambda index: bisect_right(indexes, index) - 1,
        )


class _History(FileHistory):
    """A history that only its owner can read; the chat goes on if it can't be written."""

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            Path(self.filename).touch(mode=0o600)  # type: ignore[arg-type]  # we gave it a path
            super().store_string(string)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []
