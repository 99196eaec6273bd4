"""Hooks of Claude Code: they print what is remembered, count edits, and never stand in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.features.notes.folders import CONTEXT_FILE, state_folder
from perdure.features.notes.nudges import EditCounter
from tests.support.programs import environment, perdure_from_cold
from tests.support.warm import warm


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    folder = tmp_path / "my project"
    (folder / ".git").mkdir(parents=True)
    (folder / "sub").mkdir()
    return folder


def hook(project: Path, name: str, stdin: bytes | str, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A cold start, as a person waits for it; what it leaves to a process of its own is the program on the PATH."""
    home = project.parent
    folder = warm("perdure", environment(home / "data")).parent
    ours = {"HOME": str(home), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **more}
    return perdure_from_cold(home / "data", "hook", name, *options, stdin=stdin, **ours)


def payload(project: Path, **more: Any) -> str:
    return json.dumps({"session_id": "s1", "cwd": str(project / "sub"), **more})


def log(project: Path) -> str:
    path = project.parent / "data" / "hooks.log"
    return path.read_text() if path.exists() else ""


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_session_begins_with_what_is_remembered(project: Path) -> None:
    """As Claude Code takes it: JSON on stdout. Where nothing is remembered nothing is printed."""
    prepared = state_folder(project) / CONTEXT_FILE
    prepared.parent.mkdir(parents=True, exist_ok=True)
    prepared.write_text('The build is "make all", ü.\n')
    done = hook(project, "session-start", payload(project, source="startup"))

    assert json.loads(done.stdout) == {
        "hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": 'The build is "make all", ü.\n'}
    }
    wait_for(lambda: not prepared.exists())  # it was prepared anew, and the store holds nothing
    assert hook(project, "session-start", payload(project, source="startup")).stdout == ""


def test_each_session_is_reminded_once_by_the_level_light(project: Path) -> None:
    """Also of two that are open at once, and one that goes on after a compaction."""
    counter, told = EditCounter(state_folder(project)), list[str]()
    for number in range(8):
        counter.count(f"{number}.py")
    for session in ("s1", "s2", "s1", "s2"):
        hook(project, "session-start", payload(project, session_id=session, source="compact"))
        edit = payload(project, session_id=session, tool_input={"file_path": "/a.py"})
        if hook(project, "post-tool-use", edit, "--nudges", "light").stdout:
            told.append(session)

    assert told == ["s1", "s2"]


def test_the_first_session_of_a_project_begins_with_what_holds_in_all(project: Path) -> None:
    """What is remembered of the user is no project's."""
    state = state_folder("")
    state.mkdir(parents=True)
    (state / CONTEXT_FILE).write_text("Ada prefers make.\n")

    assert "Ada prefers make." in hook(project, "session-start", payload(project)).stdout


@pytest.mark.slow
@pytest.mark.parametrize(("options", "edits"), [((), 8), (("--nudges", "strict"), 4), (("--nudges", "off"), 0)])
def test_a_reminder_is_put_before_the_model_when_it_is_due(project: Path, options: tuple[str, ...], edits: int) -> None:
    """After so many edits without a note, in the form in which Claude Code hands it on."""
    told = dict[int, str]()
    for number in range(1, 10):
        edit = payload(project, tool_input={"file_path": f"/{number}"})
        if out := hook(project, "post-tool-use", edit, *options).stdout:
            told[number] = out

    assert [*told] == ([] if not edits else [edits] if edits == 8 else [*range(edits, 10)])
    for number, out in told.items():
        found = json.loads(out)["hookSpecificOutput"]
        assert found["hookEventName"] == "PostToolUse"
        assert found["additionalContext"].startswith(f"{number} edits in {number} files since the last note")


def test_edits_are_counted_for_the_project_where_the_session_was_started(project: Path, tmp_path: Path) -> None:
    """Not for the folder into which it went meanwhile."""
    edit = {"tool_name": "Edit", "tool_input": {"file_path": "/a.py"}}
    notebook = {"tool_name": "NotebookEdit", "tool_input": {"notebook_path": "/b.ipynb"}}
    (tmp_path / "elsewhere").mkdir()
    elsewhere = {"cwd": str(tmp_path / "elsewhere")}
    for more in (edit, notebook, {**edit, **elsewhere}):
        hook(project, "post-tool-use", payload(project, **more), CLAUDE_PROJECT_DIR=str(project / "sub"))
    hook(project, "post-tool-use", payload(project, **edit))

    assert EditCounter(state_folder(project)).totals() == (4, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["session-start", "post-tool-use", "pre-compact", "stop", "session-end"])
def test_a_hook_never_blocks(project: Path, name: str) -> None:
    """Whatever is on stdin: the exit code is 0, nothing is printed, and a defect is a line in the log."""
    hostile = [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[1]",
        b'{"a":' * 100_000,
        b'{"cwd": "/no/such/folder"}',
        b'{"cwd": 3}',
    ]
    odd = {"tool_input": [], "transcript_path": 3, "session_id": {}}
    for stdin in (*hostile, payload(project, **odd).encode()):
        done = hook(project, name, stdin)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    assert f" {name}: JSONDecodeError" in log(project)
    assert f" {name}: RecursionError" in log(project)
    assert f" {name}: InvalidInput: project '/no/such/folder' can't be used" in log(project)


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["session-start", "--nudges"]])
def test_a_hook_that_is_not_known_does_not_block(project: Path, arguments: list[str]) -> None:
    """Another exit code than 0 would stop what Claude Code does."""
    done = perdure_from_cold(project.parent / "data", "hook", *arguments, stdin="{}", HOME=str(project.parent))

    assert (done.returncode, done.stdout) == (0, "")
    assert arguments[:1] == ["session-start"] or "there are the hooks session-start, " in log(project)


@pytest.mark.slow
def test_the_hooks_of_this_machine_are_listed_as_well(project: Path) -> None:
    """By the same noun, which is quick only where a hook is named."""
    data = project.parent / "data"
    data.mkdir(exist_ok=True)
    (data / "hooks.toml").write_text("[[hook]]\nname = 'limit'\non = 'run_end'\ncommand = 'true'\n")
    listed, helps = (perdure_from_cold(data, "hook", verb, HOME=str(project.parent)) for verb in ("list", "--help"))

    assert listed.stdout.startswith("limit  run_end")
    assert "Usage: perdure hook" in helps.stdout


def test_a_data_folder_that_can_not_be_written_does_not_block(project: Path) -> None:
    (project.parent / "data").write_text("a file")
    edit = payload(project, tool_input={"file_path": "/a.py"})

    assert hook(project, "post-tool-use", edit).returncode == 0


def test_a_session_is_stored_by_a_process_of_its_own(project: Path) -> None:
    """The hook does not wait for it; the next session begins with what was said."""
    transcript = project.parent / "s1.jsonl"
    message = {"role": "user", "content": "I live in Turin."}
    entry = {"type": "user", "uuid": "u1", "timestamp": "2026-11-29T04:00:00Z", "message": message}
    transcript.write_text(json.dumps(entry) + "\n")
    from_cold = os.environ["PATH"]  # the one that nothing warm is on
    done = hook(project, "stop", payload(project, transcript_path=str(transcript)), PATH=from_cold)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wait_for((state_folder(project) / CONTEXT_FILE).exists)

    assert "Turin" in hook(project, "session-start", payload(project, source="startup")).stdout
    assert log(project) == ""


def test_many_sessions_at_once_are_all_stored(project: Path) -> None:
    """They wait for one another."""
    for number in range(4):
        message = {"role": "user", "content": f"The ship number {number} is blue."}
        entry = {"type": "user", "uuid": f"u{number}", "timestamp": "2026-11-29T04:00:00Z", "message": message}
        (project.parent / f"s{number}.jsonl").write_text(json.dumps(entry) + "\n")
    ours = environment(project.parent / "data", HOME=str(project.parent))
    words: list[str | Path] = [warm("perdure", ours), "hook", "work", "capture", project]
    started = [
        subprocess.Popen([*words, f"s{number}", project.parent / f"s{number}.jsonl"], env=ours) for number in range(4)
    ]
    assert [one.wait(90) for one in started] == [0] * 4

    text = (state_folder(project) / CONTEXT_FILE).read_text()
    assert [number for number in range(4) if f"The ship number {number} is blue." not in text] == []


def test_a_hook_imports_little() -> None:
    """A person waits for it: neither the library nor the command line is loaded."""
    program = (
        "import sys; sys.argv = ['perdure', 'hook', 'post-tool-use']\n"
        "from perdure.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "own = ('perdure', 'typer', 'pydantic', 'mcp')\n"
        "print(*(name for name, module in sys.modules.items() if module and name.split('.')[0] in own))"
    )
    ours = environment(Path("/nonexistent"))
    done = subprocess.run(
        [sys.executable, "-c", program], input='{"cwd": "/"}', env=ours, capture_output=True, text=True, check=True
    )
    loaded = {name for name in done.stdout.split() if not name.startswith("perdure.features")}

    assert loaded == {"perdure", "perdure.cli", "perdure.core", "perdure.core.features"}
