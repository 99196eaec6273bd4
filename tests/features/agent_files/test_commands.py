"""`perdure agent export` and `perdure agent import`, as programs."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.domain.blocks.units import NewBlock
from tests.support.library import open_sync
from tests.support.programs import run_inside


def test_an_agent_goes_to_another_store_as_a_file(tmp_path: Path) -> None:
    """With its memory and history. A file is not replaced, and what is not an agent file makes nothing."""
    home, other, file = tmp_path / "home", tmp_path / "other", tmp_path / "helper.af"
    home.mkdir()
    with open_sync(home / "perdure.db") as store:
        store.create_agent("helper", blocks=[NewBlock(label="human", value="Ada")]).send("I planted a quince tree.")

    exported = run_inside(home, "agent", "export", "helper", str(file))
    again = run_inside(home, "agent", "export", "helper", str(file))
    bare = run_inside(home, "agent", "export", "helper", "-", "--no-messages")
    imported = run_inside(other, "agent", "import", str(file), "--name", "copy")
    wrong = run_inside(other, "agent", "import", "-")

    assert exported.returncode == 0, exported.stderr
    assert f"perdure agent import {file}" in exported.stderr
    assert (again.returncode, "--overwrite" in again.stderr) == (1, True)
    assert json.loads(bare.stdout)["agents"][0]["messages"] == []
    assert imported.returncode == 0, imported.stderr
    assert "Imported 1 agent: 'copy'" in imported.stderr
    assert (wrong.returncode, "agent file" in wrong.stderr) == (1, True)
    with open_sync(other / "perdure.db") as store:
        (agent,) = store.agents()
        assert agent.blocks.get("human").value == "Ada"
        assert agent.messages()[0].text == "I planted a quince tree."


def test_an_agent_goes_to_another_organisation_as_a_file(tmp_path: Path) -> None:
    file = tmp_path / "helper.af"
    run_inside(tmp_path, "agent", "create", "helper")
    run_inside(tmp_path, "org", "create", "Acme")
    assert run_inside(tmp_path, "agent", "export", "helper", str(file)).returncode == 0
    imported = run_inside(tmp_path, "agent", "import", str(file), "--name", "copy", "--org", "Acme")
    assert imported.returncode == 0, imported.stderr
    again = run_inside(tmp_path, "agent", "export", "copy", "-", "--org", "Acme")
    assert json.loads(again.stdout)["agents"][0]["name"] == "copy"
    assert run_inside(tmp_path, "agent", "export", "copy", "-").returncode == 1
