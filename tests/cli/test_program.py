"""`perdure` as a program: what comes out of it for what goes in, over restarts, in pipes and on a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from perdure.cli.views.text import agents_view
from perdure.cli.views.view import AgentRow
from tests.support.library import open_async, open_sync
from tests.support.programs import environment, perdure, perdure_from_cold, run_inside
from tests.support.warm import warm

Child = subprocess.Popen[bytes]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", ["agent list", "agent list --json", "--help"])
def test_an_output_that_has_no_room_is_said_so(tmp_path: Path, words: str) -> None:
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("sam")
    command = [sys.executable, "-m", "perdure", *words.split()]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, env=environment(tmp_path), stdout=full, stderr=subprocess.PIPE, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith(b"error: the output can't be written: ") and b"Traceback" not in done.stderr


def test_it_remembers_over_a_restart(tmp_path: Path) -> None:
    """Lines on stdin are messages; what one process was told, the next one knows; stdout has the agent's words only."""
    told = perdure_from_cold(tmp_path, stdin="My name is Ada Lovelace.\nI live in Turin.\n\n我喜欢围棋。\n")
    second = perdure(tmp_path, stdin="What is my name?\nWhere do I live?\n我喜欢什么？\n/search 围棋")

    assert (told.returncode, second.returncode) == (0, 0)
    assert "Made agent 'Perdure'; its memory is in " in told.stderr
    assert "perdure/extractive" in told.stderr
    assert "    + Name: Ada Lovelace" in told.stderr
    assert "⚙" not in told.stdout
    name, place, liked, *hits = second.stdout.splitlines()
    assert "Ada Lovelace" in name
    assert "Turin" in place
    assert "围棋" in liked
    assert any("user" in line and "我喜欢围棋。" in line for line in hits)
    assert "Agent 'Perdure' (model perdure/extractive), 12 messages remembered." in second.stderr


def test_a_text_in_place_of_a_command_is_a_message(tmp_path: Path) -> None:
    """One that could be the name of a command is none: a mistyped command is sent to nobody."""
    first = run_inside(tmp_path, "My name is Ada Lovelace.")
    second = run_inside(tmp_path, "What is my name?", "--json")
    typo = run_inside(tmp_path, "agnets")

    assert "Noted: Name: Ada Lovelace." in first.stdout
    assert "Ada Lovelace" in json.loads(second.stdout)["text"]
    assert (typo.returncode, "No such command 'agnets'" in typo.stderr) == (2, True)


def test_json_is_one_object_for_each_message(tmp_path: Path) -> None:
    """A run's object holds all there is to know of it; edits carry their diffs, and nothing else is printed."""
    result = perdure(tmp_path, "chat", "--json", stdin="My name is Ada Lovelace.\n/memory human\n")

    run, memory = map(json.loads, result.stdout.splitlines())
    assert result.returncode == 0
    assert result.stderr == ""
    assert run["agent"] == "Perdure"
    assert run["agent_id"].startswith("agent-")
    assert run["run_id"].startswith("run-")
    assert "Ada Lovelace" in run["text"]
    assert run["stop_reason"] == "end_turn"
    assert run["usage"]["input_tokens"] > 0
    assert [(edit["label"], edit["version"]) for edit in run["edits"]] == [("human", 1)]
    assert "+Name: Ada Lovelace" in run["edits"][0]["diff"]
    assert [message["role"] for message in run["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert memory["blocks"][0]["value"] == "Name: Ada Lovelace"
    assert memory["blocks"][0]["chars_current"] == len("Name: Ada Lovelace")


def test_one_message_needs_no_command(tmp_path: Path) -> None:
    """`perdure -p` makes the first agent, and talks to the one used last as `perdure chat -p` does."""
    told = run_inside(tmp_path, "-p", "I like 围棋.", "--model", "perdure/extractive")
    second = run_inside(tmp_path, "-p", "What do I like?", "--json")

    assert (told.returncode, second.returncode) == (0, 0)
    assert told.stdout.startswith("Noted: Likes: 围棋.\n")
    assert json.loads(second.stdout)["text"] == "You like 围棋."
    assert [row["name"] for row in json.loads(run_inside(tmp_path, "agent", "list", "--json").stdout)] == ["Perdure"]


def test_the_agent_of_another_program_is_not_talked_to(tmp_path: Path) -> None:
    """Nothing is sent that can't be answered here; the error says what helps, and looking into memory works."""
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("guide")
    once = run_inside(tmp_path, "-p", "hello")
    lines = perdure(tmp_path, stdin="hello\n/memory human\n")

    assert (once.returncode, lines.returncode) == (1, 1)
    assert once.stderr == (
        "error: model 'test/scripted' is not available here: there are perdure/extractive. Nothing was sent. Agent"
        " 'guide' belongs to a program that brings this model along: talk to it from there, or give the agent another"
        " model: /model perdure/extractive in `perdure chat guide`\n"
    )
    assert lines.stdout.startswith("human  0/5,000")
    assert json.loads(run_inside(tmp_path, "agent", "list", "--json").stdout)[0]["messages"] == 0


def test_agents_are_listed(tmp_path: Path) -> None:
    """An empty folder says how to make one and is left alone; then names, ids, models and counts, last used first."""
    home = tmp_path / "home"
    empty = run_inside(home, "agent", "list")
    assert empty.returncode == 0
    assert "`perdure` makes one" in empty.stderr
    assert not home.exists()

    run_inside(home, "chat", "Ada's helper", "--new", "-p", "I like tea.")
    run_inside(home, "chat", "Second", "--new", "-p", "hello")
    rows = json.loads(run_inside(home, "agent", "list", "--json").stdout)
    table = run_inside(home, "agent", "list").stdout.splitlines()

    assert [row["name"] for row in rows] == ["Second", "Ada's helper"]
    assert [row["messages"] for row in rows] == [2, 4]
    assert {row["model"] for row in rows} == {"perdure/extractive"}
    assert table[0].split() == ["name", "id", "model", "last", "used", "messages"]
    assert rows[0]["id"] in table[1]


async def test_a_narrow_list_of_agents_breaks_no_id(tmp_path: Path) -> None:
    """It has no ids, unless two agents have one name."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        agents = [(await perdure.create_agent(name)).info for name in ("ann", "bob")]
    rows = [AgentRow(info, info.created_at) for info in agents]
    same = [rows[0], AgentRow(replace(agents[1], name="ann"), agents[1].created_at)]

    assert "agent-" not in shown(rows) and "test/scripted" in shown(rows)
    assert "agent-" in shown(same)


def shown(rows: list[AgentRow]) -> str:
    """The table in a terminal of 80 cells."""
    screen = io.StringIO()
    Console(width=80, file=screen).print(agents_view(rows))
    return screen.getvalue()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("chat", "Bob"), 1, "agent 'Bob' not found: there is none yet; `perdure chat Bob --new` makes it"),
        (("chat", "--model", "x/y"), 1, "model 'x/y' is not available here: there are perdure/extractive"),
        (("chat", "a/b", "--new"), 1, "agent name 'a/b' can't be used"),
        (("chat", "-p", "  "), 1, "the message is empty"),
        (("chat", "--new"), 2, "perdure chat NAME --new"),
        (("history",), 1, "error: there is no agent yet: `perdure` makes one and starts the chat"),
        (("agent", "cancel", "eve"), 1, "agent 'eve' not found: there is no agent yet: `perdure` makes one"),
        (("tool", "show", "x"), 1, "tool 'x' not found: there is none yet: `perdure tool add FILE.py` makes one"),
        (("nonsense",), 2, "nonsense"),
        (("--model", "x/y", "-p", "hi"), 1, "model 'x/y' is not available here: there are perdure/extractive"),
        (("--json", "agents"), 2, "`perdure agent list --json`"),
    ],
)
def test_a_wrong_call_is_one_error_without_a_traceback(
    tmp_path: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    """What was wrong, and what helps, on stderr; 1 for what could not be done, 2 for what could not be understood."""
    result = run_inside(tmp_path, *arguments)

    assert result.returncode == code
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_an_unknown_model_makes_no_agent(tmp_path: Path) -> None:
    """The handle is checked first, before there is a store; with --json the error is an object."""
    result = run_inside(tmp_path, "chat", "Bob", "--new", "--model", "x/y", "--json", "-p", "hi")

    assert result.returncode == 1
    assert json.loads(result.stdout)["error"]["type"] == "model_not_found"
    assert list(tmp_path.iterdir()) == []
    assert json.loads(run_inside(tmp_path, "agent", "list", "--json").stdout) == []


def test_a_folder_that_can_not_hold_a_store_is_an_error(tmp_path: Path) -> None:
    """A data folder that is a file, and a store that is another program's database."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    with sqlite3.connect(tmp_path / "other" / "perdure.db") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()

    for home in ("file", "other"):
        result = run_inside(tmp_path / home, "chat", "-p", "hi")

        assert result.returncode == 1
        assert result.stderr.startswith("error: ")
        assert len(result.stderr.splitlines()) == 1


def test_bytes_that_are_no_utf_8_are_a_message_like_any_other(tmp_path: Path) -> None:
    """Nothing crashes: not reading, not storing, not printing, not as JSON."""
    dirty = b"Remember that \xff\xfe is \x00 a \x1b[31mcode\r\n"
    plain = perdure(tmp_path, stdin=dirty)
    as_json = perdure(tmp_path, "chat", "--json", stdin=dirty)

    assert (plain.returncode, as_json.returncode) == (0, 0)
    assert "\x1b" not in plain.stdout + plain.stderr
    assert json.loads(as_json.stdout)["messages"][0]["text"] == dirty.decode("utf-8", "surrogateescape").strip("\r\n")


@contextmanager
def on_a_terminal(
    home: Path, *arguments: str, keyboard: bool = False, cold: bool = False, **more: str
) -> Iterator[tuple[Screen, Child]]:
    """The program on a terminal of its own; with a keyboard, stdin is one too; a cold one has nothing imported."""
    ours, theirs = pty.openpty()
    env = environment(home, **more)
    program = [sys.executable, "-m", "perdure"] if cold else [str(warm("perdure", env))]
    with subprocess.Popen(
        [*program, *arguments],
        env=env,
        stdin=theirs if keyboard else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as child:
        os.close(theirs)
        try:
            yield Screen(ours), child
        finally:
            child.kill()  # else a failed test would wait for a program that waits for its keyboard
            os.close(ours)


class Screen:
    """What a terminal was sent."""

    def __init__(self, fd: int) -> None:
        self.fd, self.shown, self.seen = fd, b"", 0

    def read_until(self, text: str) -> None:
        """Wait for this text, after the one that was waited for before; an empty one is the end."""
        while not text or (at := self.shown.find(text.encode(), self.seen)) < 0:
            assert select.select([self.fd], [], [], 20)[0], self.shown
            try:
                chunk = os.read(self.fd, 65_536)
            except OSError:  # Linux tells the end of a terminal so
                chunk = b""
            self.shown += chunk
            if not chunk:
                assert not text, self.shown
                return
        self.seen = at + len(text.encode())

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())


@pytest.mark.parametrize("no_color", [False, True])
def test_colours_only_for_those_who_want_them(tmp_path: Path, no_color: bool) -> None:
    """On a terminal there are colours; with NO_COLOR there is not one escape code."""
    with on_a_terminal(tmp_path, "chat", "-p", "I live in Turin.", NO_COLOR="1" if no_color else "") as (screen, _):
        screen.read_until("")

    assert b"+ Lives in: Turin" in screen.shown
    assert (b"\x1b" in screen.shown) is not no_color


def test_a_transcript_goes_through_the_pager(tmp_path: Path) -> None:
    """And a chat that goes on begins with the last turns."""
    perdure(tmp_path, "-p", "I live in Turin.")
    with on_a_terminal(tmp_path, "history", keyboard=True, PAGER="sed s/^/paged:/") as (screen, _):
        screen.read_until("goes on")
    with on_a_terminal(tmp_path, keyboard=True) as (chat, _):
        chat.read_until("remembered")
        chat.read_until("I live in Turin.")
        chat.read_until(">")

    lines = screen.shown.decode().splitlines()
    assert [line for line in lines if line.startswith("paged:") and "I live in Turin." in line]


@pytest.mark.slow
@pytest.mark.parametrize("terminal", ["xterm-256color", "dumb"])
def test_a_person_chats_at_a_prompt(tmp_path: Path, terminal: str) -> None:
    """The first run makes an agent; edits are shown between the words; /quit leaves with exit code 0."""
    with on_a_terminal(tmp_path, keyboard=True, cold=terminal != "dumb", TERM=terminal) as (screen, child):
        screen.read_until(">")
        screen.type("I live in Turin.\r")
        screen.read_until("Noted: Lives in: Turin.")
        screen.read_until(">")
        screen.type("/quit\r")
        screen.read_until("goes on.")
        screen.read_until("")
        code = child.wait(20)

    assert code == 0
    output = screen.shown.decode()
    assert "Made agent 'Perdure'" in output
    assert "+ Lives in: Turin" in output


def test_sigint_between_lines_ends_the_program(tmp_path: Path) -> None:
    """Waiting for the next line is no run: there is nothing to cancel, and the exit code is a shell's."""
    env = environment(tmp_path)
    with subprocess.Popen(
        [warm("perdure", env)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"I live in Turin.\n")
        child.stdin.flush()
        assert b"Turin" in child.stdout.readline()
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
        child.stdin.close()


def test_a_reader_that_leaves_is_no_traceback(tmp_path: Path) -> None:
    """`perdure … | head -1` ends quietly."""
    env = environment(tmp_path)
    script = f"'{warm('perdure', env)}' chat -p hello | true"
    result = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, timeout=60)

    assert "Traceback" not in result.stderr


def test_help_loads_neither_engine_nor_terminal_libraries(tmp_path: Path) -> None:
    """`perdure --help` stays quick: what commands need is imported when one runs."""
    program = (
        "import sys; sys.argv = ['perdure', '--help']\n"
        "from perdure.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('rich', 'prompt_toolkit', 'sqlite3', 'asyncio', 'perdure.library', 'perdure.app')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path), capture_output=True, text=True, timeout=60
    )

    assert "PERDURE_HOME" in result.stdout
    assert result.stderr == "[]\n"


def test_the_version_is_told(tmp_path: Path) -> None:
    """`--version` names the program and its version."""
    result = run_inside(tmp_path, "--version")

    assert result.returncode == 0
    assert result.stdout.startswith("perdure ")
