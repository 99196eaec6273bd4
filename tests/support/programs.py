"""The program as a child process, and a chat inside this one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from perdure import AsyncPerdure
from perdure.cli.app import app
from perdure.cli.chat.slash import run_command
from perdure.cli.session.session import ChatSession
from perdure.cli.views.text import TextView
from perdure.library.agent import AsyncAgent
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel
from tests.support.library import MODEL
from tests.support.warm import warm

SRC = Path(__file__).resolve().parents[2] / "src"


def environment(home: Path, **more: str) -> dict[str, str]:
    """What the program sees: this data folder, and none of the tester's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_") and name != "NO_COLOR"}
    ours = {
        "PERDURE_HOME": str(home),
        "PERDURE_PROBE_LOCAL": "0",
        "PERDURE_EMBEDDING": "none",
        "PYTHONPATH": str(SRC),
        "TERM": "xterm-256color",
    }
    return {**kept, **ours, **more}


def perdure(home: Path, *arguments: str, stdin: bytes | str = b"", **more: str) -> subprocess.CompletedProcess[str]:
    """Run `perdure` to its end, with these bytes on stdin."""
    ours = environment(home, **more)
    return _run([warm("perdure", ours), *arguments], stdin, ours)


def perdure_from_cold(
    home: Path, *arguments: str, stdin: bytes | str = b"", **more: str
) -> subprocess.CompletedProcess[str]:
    """The same in a Python of its own, that starts with nothing imported."""
    return _run([sys.executable, "-m", "perdure", *arguments], stdin, environment(home, **more))


def _run(
    command: Sequence[str | Path], stdin: bytes | str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        env=environment,
        capture_output=True,
        timeout=60,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_inside(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The same inside this process, which is quicker; there is nothing on stdin to read."""
    env = {"PERDURE_HOME": str(home), "PERDURE_MODEL": "", **more}
    done = CliRunner().invoke(app, arguments, prog_name="perdure", env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


class ListedLines:
    """Lines from a list. None among them stands for Ctrl-C at a question, elsewhere for the end.

    `questions` holds each question with its prefill.
    """

    prefills = True

    def __init__(self, lines: Sequence[str | None], *, interactive: bool = False) -> None:
        self.lines = list(lines)
        self.interactive = interactive
        self.questions: list[tuple[str, str]] = []

    async def read(self) -> str | None:
        return self.lines.pop(0) if self.lines else None

    async def ask(self, question: str, *, prefill: str = "") -> str | None:
        self.questions.append((question, prefill))
        return self.lines.pop(0) if self.lines else None

    def interrupt(self) -> None:
        self.lines.clear()

    def keep_keys(self, interrupt: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Chat:
    """A chat with a scripted model: what was typed is given, what was shown can be read."""

    perdure: AsyncPerdure
    agent: AsyncAgent
    view: TextView
    out: io.StringIO
    err: io.StringIO
    source: ListedLines
    session: ChatSession

    async def type_lines(self, *lines: str | None) -> int:
        """Type these lines, or Ctrl-C where one is None; the exit code."""
        self.source.lines.extend(lines)
        return await self.session.run()


@asynccontextmanager
async def open_chat(
    *script: Any, person: bool = True, terminal: bool = True, tools: Sequence[Any] = (), model: Any = None
) -> AsyncIterator[Chat]:
    """A chat with an agent of the scripted model.

    Args:
        person: whether somebody sits at a prompt, or lines come through a pipe.
        terminal: whether stdout is one.
    """
    opened = await AsyncPerdure.open(
        models={MODEL: model or ScriptedModel(*script)}, tools=tools, settings=Settings(), store=InlineStore()
    )
    async with opened as store:
        agent = await store.create_agent("Ada's helper", model=MODEL)
        out, err = (Screen() if terminal else io.StringIO()), io.StringIO()
        view = TextView(out, err, interactive=person, coloured=False)
        source = ListedLines([], interactive=person)
        yield Chat(
            store, agent, view, out, err, source, ChatSession(store, agent, source, view, run_command=run_command)
        )
