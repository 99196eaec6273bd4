"""The programs themselves read what was written. Skipped where they are not: `npm install @anthropic-ai/claude-code
@openai/codex @letta-ai/letta-code jsonc-parser` puts them into a folder, whose
`node_modules/.bin` then belongs into PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from perdure.features.connect.files import plan_changes
from perdure.features.connect.programs import ConfigEntry
from perdure.features.notes.folders import CONTEXT_FILE, state_folder
from perdure.features.notes.nudges import EditCounter
from tests.features.connect.claude_api import answers
from tests.support.programs import SRC, perdure

CLAUDE, CODEX, LETTA, NODE = (shutil.which(name) for name in ("claude", "codex", "letta", "node"))
PARSER = next(
    (path for path in map(Path, os.environ["PATH"].split(":")) if (path.parent / "jsonc-parser").is_dir()), None
)


class User:
    """A user with an empty home, a project and a data folder."""

    def __init__(self, folder: Path) -> None:
        self.home, self.data = folder / "home", folder / "the data"
        self.project = self.home / "a project"
        (self.project / ".git").mkdir(parents=True)
        (self.project / "sub").mkdir()

    def perdure(self, *arguments: str) -> str:
        done = perdure(self.data, *arguments, HOME=str(self.home))
        assert done.returncode == 0, done
        return done.stdout

    def run(self, *words: str | None, **more: str) -> str:
        """Run a program in a folder of the project."""
        ours = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SRC),
            "PERDURE_PROBE_LOCAL": "0",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            **more,
        }
        done = subprocess.run(
            [word for word in words if word],
            cwd=self.project / "sub",
            env=ours,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    found = User(tmp_path)
    monkeypatch.setenv("PERDURE_HOME", str(found.data))
    return found


@pytest.mark.skipif(CLAUDE is None, reason="there is no claude here")
def test_claude_code_remembers_from_one_session_to_the_next(user: User) -> None:
    """Its health check connects; hooks store a session, count its edit, and begin the next one with what was said."""
    user.perdure("connect", "claude-code", "--yes")
    assert "Connected" in user.run(CLAUDE, "mcp", "list")
    written = user.project / "hello.txt"
    with answers(str(written)) as api:
        model = {"ANTHROPIC_BASE_URL": api.address, "ANTHROPIC_API_KEY": "none"}
        user.run(CLAUDE, "-p", "My name is Ada, and I live in Turin.", "--allowedTools", "Write", **model)
        assert written.read_text() == "hello\n"
        state, end = state_folder(user.project), time.monotonic() + 60
        while not (state / CONTEXT_FILE).exists():
            assert time.monotonic() < end
            time.sleep(0.2)
        assert (state / "edits.jsonl").read_text().count("hello.txt") == 1
        before = len(api.requests)
        user.run(CLAUDE, "-p", "What do you know of me?", **model)

    assert "What Perdure remembers" in json.dumps(api.requests[before:])
    assert "Turin" in json.dumps(api.requests[before:])


@pytest.mark.skipif(CLAUDE is None, reason="there is no claude here")
def test_claude_code_hands_a_reminder_to_the_model(user: User) -> None:
    """With the result of the edit behind which it is due."""
    user.perdure("connect", "claude-code", "--yes", "--nudges", "strict")
    for number in range(3):
        EditCounter(state_folder(user.project)).count(f"/{number}")
    with answers(str(user.project / "hello.txt")) as api:
        model = {"ANTHROPIC_BASE_URL": api.address, "ANTHROPIC_API_KEY": "none"}
        user.run(CLAUDE, "-p", "Write hello.", "--allowedTools", "Write", **model)

    assert "4 edits in 4 files since the last note" in json.dumps(api.requests)


@pytest.mark.skipif(LETTA is None, reason="there is no letta here")
def test_letta_code_asks_the_server_of_its_settings(user: User) -> None:
    """Without a variable that names it."""
    with answers("") as api:
        perdure(user.data, "connect", "letta-code", "--yes", HOME=str(user.home), PERDURE_BASE_URL=api.address)
        user.run(LETTA, "-p", "hello")

    assert any("/v1/agents" in path for path in api.paths), api.paths


@pytest.mark.skipif(CLAUDE is None, reason="there is no claude here")
def test_claude_code_keeps_working_after_undo(user: User) -> None:
    """It has written its file anew meanwhile: only the entry is taken out."""
    user.perdure("connect", "claude-code", "--yes")
    user.run(CLAUDE, "mcp", "list")
    assert "only Perdure's entries were taken out" in user.perdure("connect", "claude-code", "--undo")

    assert "No MCP servers configured" in user.run(CLAUDE, "mcp", "list")
    assert not (user.home / ".claude/settings.json").exists()


@pytest.mark.skipif(CODEX is None, reason="there is no codex here")
def test_codex_reads_its_configuration(user: User) -> None:
    """Beside what was there."""
    config = user.home / ".codex/config.toml"
    config.parent.mkdir()
    config.write_text('model = "gpt-5" # mine\n[mcp_servers.docs]\ncommand = "npx"')
    user.perdure("connect", "codex", "--yes")
    servers = {one["name"]: one["transport"] for one in json.loads(user.run(CODEX, "mcp", "list", "--json"))}
    assert sorted(servers) == ["docs", "perdure"]
    assert servers["perdure"]["args"][-3:] == ["mcp", "--project", "."]
    assert servers["perdure"]["env"] == {"PERDURE_HOME": str(user.data)}
    user.perdure("connect", "codex", "--undo")

    assert config.read_text() == 'model = "gpt-5" # mine\n[mcp_servers.docs]\ncommand = "npx"'


@pytest.mark.skipif(NODE is None or PARSER is None, reason="there is no jsonc-parser here")
def test_the_editors_own_parser_reads_what_was_written(user: User) -> None:
    """VS Code's: without an error, and with the entry."""
    path = user.home / "mcp.json"
    path.write_text('// mine\n{\n\t"servers": {\n\t\t"a": { "command": "x", }, // one, two\n\t},\n}\n')
    (change,) = plan_changes([ConfigEntry(path=path, format="jsonc", names=("servers", "perdure"), value={"a": [1]})])
    path.write_bytes(change.after)
    program = (
        "const {parse} = require(process.argv[1]); const errors = [];"
        "const text = require('fs').readFileSync(process.argv[2], 'utf8');"
        "const found = parse(text, errors, {allowTrailingComma: true});"
        "console.log(JSON.stringify([errors, found]))"
    )
    assert PARSER is not None
    errors, found = json.loads(user.run(NODE, "-e", program, str(PARSER.parent / "jsonc-parser"), str(path)))

    assert (errors, found) == ([], {"servers": {"a": {"command": "x"}, "perdure": {"a": [1]}}})
