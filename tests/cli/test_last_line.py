"""The command that the chat's last line names."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from perdure.cli.session.agent_choice import chat_command
from perdure.cli.views.terminal import Terminal
from tests.support.library import open_async


@pytest.mark.parametrize(("on_path", "named"), [(True, "perdure chat helper"), (False, "bin/perdure chat helper")])
async def test_it_names_a_command_that_works_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: bool, named: str
) -> None:
    """With the path of the program where `perdure` is not on PATH, as after `make run`."""
    program = tmp_path / "bin" / "perdure"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", str(program.parent) if on_path else str(tmp_path))

    async with await open_async(tmp_path / "agents.db") as perdure:
        assert chat_command(await perdure.create_agent("helper")) == named

    shown = io.StringIO()
    Terminal(shown, shown, interactive=True).hint("`perdure chat helper` goes on, in perdure's words")
    assert shown.getvalue() == f"`{named}` goes on, in perdure's words\n"
