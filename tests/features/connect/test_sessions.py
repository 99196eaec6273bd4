"""What was remembered in one session of Claude Code stands at the start of the next one, as its configuration says."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from perdure.features.notes.folders import CONTEXT_FILE, state_folder
from tests.support.programs import environment, perdure
from tests.support.warm import warm


class ClaudeCode:
    """Runs what Claude Code would, by the files that were written for it.

    Args:
        home: of the user; its folder `project` is open, and `data` has the memory.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.project = home, home / "project"
        (self.project / ".git").mkdir(parents=True)
        ours = environment(home / "data", HOME=str(home), CLAUDE_PROJECT_DIR=str(self.project))
        # A cold start costs a second of CPU. The hooks start this program too, because it is the one on the PATH.
        self._program = warm("perdure", ours)
        self._environment = {**ours, "PATH": os.pathsep.join([str(self._program.parent), ours["PATH"]])}

    def perdure(self, *arguments: str) -> None:
        done = perdure(self.home / "data", *arguments, HOME=str(self.home), PATH=self._environment["PATH"])
        assert done.returncode == 0, done

    def connect(self) -> None:
        """In the folder of the project, as a person would."""
        words: list[str | Path] = [self._program, "connect", "claude-code", "--yes"]
        subprocess.run(words, cwd=self.project, env=self._environment, check=True, capture_output=True)

    def run_hook(self, event: str, **payload: Any) -> str:
        """Run a hook as its settings say; return what it puts before the model."""
        ((group,),) = (json.loads((self.home / ".claude/settings.json").read_text())["hooks"][event],)
        done = subprocess.run(
            ["sh", "-c", group["hooks"][0]["command"]],
            input=json.dumps({"session_id": "s1", "cwd": str(self.project), "hook_event_name": event, **payload}),
            env=self._environment,
            cwd=self.project,
            capture_output=True,
            text=True,
            check=True,
        )
        return str(json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]) if done.stdout else ""

    def server(self) -> Client:
        """A client of the server that its settings name."""
        server = json.loads((self.home / ".claude.json").read_text())["mcpServers"]["perdure"]
        ours = {**self._environment, **server["env"]}
        return Client(
            StdioServerParameters(command=server["command"], args=server["args"], env=ours, cwd=str(self.project))
        )

    @property
    def context(self) -> Path:
        return state_folder(self.project) / CONTEXT_FILE

    def say(self, key: str, text: str) -> str:
        """The transcript of the session with one more message of the user."""
        path = self.home / "s1.jsonl"
        entry = {"type": "user", "uuid": key, "timestamp": "2026-11-29T04:00:00Z"}
        with path.open("a") as file:
            file.write(json.dumps({**entry, "message": {"role": "user", "content": text}}) + "\n")
        return str(path)


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClaudeCode:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return ClaudeCode(tmp_path)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def has(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


async def test_a_session_begins_with_what_the_last_one_remembered(claude: ClaudeCode) -> None:
    """By a tool and by its transcript."""
    claude.connect()
    claude.run_hook("SessionStart", source="startup")
    async with claude.server() as client:
        result = await client.call_tool("memory_remember", {"text": "I live in Ghent.", "level": "global"})
        assert not result.is_error
    transcript = claude.say("u1", "My name is Ada.")
    claude.run_hook("SessionEnd", transcript_path=transcript, reason="other")
    wait_for(lambda: has(claude.context, "Ada"))
    text = claude.run_hook("SessionStart", source="startup")

    assert "Ada" in text and "Ghent" in text


async def test_what_a_tool_remembers_is_prepared_at_once(claude: ClaudeCode) -> None:
    """While the session goes on, which may end by a kill; what was forgotten is no longer there."""
    claude.connect()
    async with claude.server() as client:
        for tool, arguments in (
            ("memory_edit_block", {"label": "project", "value": "Built with make."}),
            ("note", {"kind": "decision", "title": "Take SQLite", "fields": {"decision": "SQLite"}}),
        ):
            assert not (await client.call_tool(tool, arguments)).is_error
        wait_for(lambda: has(claude.context, "Take SQLite"))
        assert has(claude.context, "Built with make.")
        await client.call_tool("memory_edit_block", {"label": "project", "value": "Built with ninja."})

    assert has(claude.context, "ninja") and not has(claude.context, "with make")


async def test_a_server_that_only_reads_prepares_nothing(claude: ClaudeCode) -> None:
    claude.perdure("connect", "claude-code", "--yes", "--read-only")
    async with claude.server() as client:
        await client.call_tool("memory_context", {})

    assert not claude.context.exists()


def test_the_first_session_after_connecting_begins_with_what_is_known(claude: ClaudeCode) -> None:
    """A project that was worked on by another program, whose first session with hooks this is."""
    claude.perdure("note", "add", "decision", "Take SQLite", "--project", str(claude.project), "decision=SQLite")
    claude.connect()
    wait_for(claude.context.exists)

    assert "Take SQLite" in claude.run_hook("SessionStart", source="startup")


def test_what_is_compacted_is_stored_before(claude: ClaudeCode) -> None:
    """The session begins anew behind it, with what was said."""
    claude.connect()
    claude.run_hook("PreCompact", transcript_path=claude.say("u1", "I live in Turin."), trigger="auto")
    wait_for(lambda: has(claude.context, "Turin"))

    assert "Turin" in claude.run_hook("SessionStart", source="compact")
