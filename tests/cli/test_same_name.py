"""What the commands do with a name that several agents have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.library import open_sync
from tests.support.programs import run_inside

CHANGES = (
    ("agent", "delete", "Zed", "--yes"),
    ("agent", "reset", "Zed", "--yes"),
    ("agent", "update", "Zed", "--model", "default"),
    ("agent", "settings", "Zed", "recall_budget=100"),
    ("agent", "cancel", "Zed"),
    ("memory", "restore", "human", "0", "Zed"),
    ("conversation", "delete", "1", "Zed", "--yes"),
    ("approval", "approve", "Zed"),
    ("forget", "quince", "Zed", "--yes"),
    ("undo", "Zed"),
    ("fact", "add", "Ada lives in Oslo.", "Zed"),
    ("fact", "rules", "Zed", "--lift", "1"),
    ("fact", "tidy", "Zed", "--yes"),
    ("companion", "on", "Zed"),
    ("secret", "delete", "KEY", "--agent", "Zed", "--yes"),
    ("source", "revert", "web:https://example.com", "Zed", "--yes"),
    ("group", "create", "round_robin", "Zed", "Ben"),
)
LOOKS = (
    ("agent", "settings", "Zed"),
    ("memory", "show", "human", "Zed"),
    ("fact", "list", "Zed"),
    ("context", "Zed"),
    ("undo", "Zed", "--list"),
    ("search", "quince", "--agent", "Zed"),
    ("chat", "Zed", "-p", "Hello."),
)


@pytest.fixture
def zeds(tmp_path: Path) -> tuple[str, str]:
    """The ids of two agents of one name, the newest first; the second is an import of the first."""
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("Ben")
        store.create_agent("Zed")
    file = str(tmp_path / "z.af")
    run_inside(tmp_path, "agent", "export", "Zed", file)

    imported = run_inside(tmp_path, "agent", "import", file)

    with open_sync(tmp_path / "perdure.db") as store:
        newest, oldest = (agent.id for agent in store.agents() if agent.name == "Zed")
    assert f"2 agents are named 'Zed' now: {newest} (made " in imported.stderr
    return newest, oldest


@pytest.mark.slow
@pytest.mark.uses("agent_files", "groups", "origins")
def test_a_name_of_several_agents_is_refused_where_one_is_changed(tmp_path: Path, zeds: tuple[str, str]) -> None:
    """The error lists the ids, and an id goes on."""
    for command in CHANGES:
        refused = run_inside(tmp_path, *command)
        assert refused.returncode == 1, command
        assert f"2 agents are named 'Zed': give an id, {zeds[0]} (made " in refused.stderr, command
        assert f", {zeds[1]} (made " in refused.stderr, command

    assert run_inside(tmp_path, "agent", "delete", zeds[1], "--yes").returncode == 0
    with open_sync(tmp_path / "perdure.db") as store:
        assert store.agents()[0].id == zeds[0]
    assert "named" not in run_inside(tmp_path, "agent", "reset", "Zed", "--yes").stderr


@pytest.mark.uses("agent_files", "costs", "facts", "origins")
def test_where_nothing_is_changed_the_newest_of_a_name_is_taken_with_a_hint(
    tmp_path: Path, zeds: tuple[str, str]
) -> None:
    """Its id gives no hint."""
    for command in LOOKS:
        shown = run_inside(tmp_path, *command)
        assert shown.returncode == 0, (command, shown.stderr)
        assert shown.stderr.count(f"2 agents are named 'Zed'; this is the newest, {zeds[0]}.") == 1, command
        by_id = run_inside(tmp_path, *(zeds[1] if word == "Zed" else word for word in command))
        assert "agents are named" not in by_id.stderr, command
