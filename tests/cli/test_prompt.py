"""The prompt of a person: keys go in by a pipe, nothing is drawn."""

from __future__ import annotations

import asyncio
import os
import pty
import select
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_input, create_pipe_input
from prompt_toolkit.output import DummyOutput

from perdure.cli.chat.slash import command_help
from perdure.cli.session.prompt import HISTORY_FILE, PromptLines


class Prompt:
    """A prompt with somebody who types."""

    def __init__(self, folder: Path, keys: PipeInput) -> None:
        self.hints: list[str] = []
        self._keys = keys
        self._lines = PromptLines(folder, command_help(), self.hints.append)
        self.interruptions = 0

    async def type_during_an_answer(self, text: str) -> None:
        """Type while nothing is read."""
        with self._lines.keep_keys(self._interrupt):
            self._keys.send_text(text)
            await asyncio.sleep(0.05)

    def _interrupt(self) -> None:
        self.interruptions += 1

    async def read(self, *typed: str) -> str | None:
        """What a read gives for these keys; they come one after the other, as from a person."""
        return await self._type(self._lines.read(), typed)

    async def ask(self, *typed: str, prefill: str = "") -> str | None:
        """The same for a question."""
        return await self._type(self._lines.ask("sure? ", prefill=prefill), typed)

    async def _type(self, what: Coroutine[Any, Any, str | None], typed: tuple[str, ...]) -> str | None:
        reading = asyncio.create_task(what)
        for text in typed:
            await asyncio.sleep(0.05)
            self._keys.send_text(text)
        async with asyncio.timeout(10):
            return await reading


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TERM", "xterm")
    return tmp_path


@contextmanager
def prompt(home: Path) -> Iterator[Prompt]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield Prompt(home, keys)


async def test_enter_sends_and_alt_enter_begins_a_line(home: Path) -> None:
    """A message may have several lines, typed or pasted."""
    with prompt(home) as person:
        assert await person.read("one\x1b\rtwo\r") == "one\ntwo"
        assert await person.read("\x1b[200~pasted\nlines\x1b[201~", "\r") == "pasted\nlines"


async def test_ctrl_c_at_an_empty_prompt_says_how_to_leave(home: Path) -> None:
    """Once is a hint, twice within two seconds leaves."""
    with prompt(home) as person:
        assert await person.read("\x03", "hi\r") == "hi"
        assert person.hints == ["Ctrl-D or /quit leaves; so does Ctrl-C again"]
        assert await person.read("\x03") is None


async def test_ctrl_c_gives_a_begun_line_up(home: Path) -> None:
    """It clears the line, and does not count as leaving."""
    with prompt(home) as person:
        assert await person.read("wrong", "\x03", "again", "\x03", "right\r") == "right"
        assert person.hints == []


async def test_ctrl_d_leaves(home: Path) -> None:
    """The end of input is the end of the chat."""
    with prompt(home) as person:
        assert await person.read("\x04") is None


async def test_commands_are_completed(home: Path) -> None:
    """Tab completes the name of a command; ordinary words are left alone."""
    with prompt(home) as person:
        assert await person.read("/sea", "\t", " Ada", "\r") == "/search Ada"
        assert await person.read("sea", "\t", "\r") == "sea"


async def test_what_was_typed_is_kept_for_its_owner_only(home: Path) -> None:
    """The arrow key brings back a line of an earlier chat; others on the machine can't read it."""
    with prompt(home) as person:
        await person.read("secret of Ada\r")
    with prompt(home) as person:
        await asyncio.sleep(0.1)
        assert await person.read("\x1b[A", "\r") == "secret of Ada"

    assert (home / HISTORY_FILE).stat().st_mode & 0o077 == 0


async def test_a_history_that_can_not_be_written_is_no_error(home: Path) -> None:
    """The chat goes on without it."""
    (home / HISTORY_FILE).mkdir()
    with prompt(home) as person:
        assert await person.read("hi\r") == "hi"


async def test_a_question_is_answered_on_a_line_that_may_begin_with_something(home: Path) -> None:
    """Ctrl-C and Ctrl-D answer nothing; what is answered is no message that the arrow key brings back."""
    with prompt(home) as person:
        assert await person.read("hello\r") == "hello"
        assert await person.ask("\x7f2}\r", prefill='{"n": 1}') == '{"n": 12}'
        assert await person.ask("y", "\x03") is None
        assert await person.ask("\x04") is None
        assert await person.read("\x1b[A", "\r") == "hello"


async def test_a_terminal_that_can_not_show_it_begins_with_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't seen would stand in the answer."""
    monkeypatch.setenv("TERM", "dumb")
    with prompt(home) as person:
        assert await person.ask("{}\r", prefill='{"n": 1}') == "{}"


async def test_what_is_typed_during_an_answer_comes_to_the_next_prompt(home: Path) -> None:
    """Not to a question, whose answer it can't be; Ctrl-C is for the answer, and pasted lines are one message."""
    with prompt(home) as person:
        await person.type_during_an_answer("and\x03 t")
        assert person.interruptions == 1
        await person.type_during_an_answer("hen\rone\x1b[200~\ntwo\x1b[201~")

        assert await person.ask("y\r") == "y"
        assert await person.read() == "and then"
        assert await person.read(" three\r") == "one\ntwo three"


async def test_a_terminal_shows_no_keys_between_prompts(home: Path) -> None:
    """They would stand inside the answer; afterwards the terminal is as it was."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as keyboard, create_app_session(create_input(keyboard), DummyOutput()):
        lines = PromptLines(home, {}, print)
        with lines.keep_keys(lambda: None):
            os.write(ours, b"typed\r")
            await asyncio.sleep(0.05)
            echo = select.select([ours], [], [], 0)[0]
            typed = await lines.read()
        os.write(ours, b"x")

        assert (echo, typed) == ([], "typed")
        assert select.select([ours], [], [], 5)[0]
    os.close(ours)
