"""What each test of the MCP server gets."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of Perdure, where outputs and counts of edits lie."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PERDURE_HOME", str(folder))
    return folder
