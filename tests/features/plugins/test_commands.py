"""`perdure plugin`: what is shown, asked and changed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.programs import run_inside

GUARD = str(Path(__file__).parent / "claude_code" / "guard")


def test_a_plug_in_is_shown_and_asked_about_before_it_is_installed(tmp_path: Path) -> None:
    """Every command that it would run word by word; without an answer nothing is changed."""
    shown = run_inside(tmp_path, "plugin", "install", GUARD)
    assert shown.returncode == 1 and "Pass --yes to install the plug-in" in shown.stderr
    assert "RUNS at PreToolUse of Bash|Write|mcp__.*: ${CLAUDE_PLUGIN_ROOT}/scripts/check.sh" in shown.stdout
    assert "helper guard:auditor: Looks for secrets" in shown.stdout
    assert "'Notification' has no effect here" in shown.stdout
    assert not (tmp_path / "plugins").exists()

    done = run_inside(tmp_path, "plugin", "install", GUARD, "--yes")
    assert done.returncode == 0 and "Installed guard." in done.stderr
    again = run_inside(tmp_path, "plugin", "install", GUARD, "--yes")
    assert again.returncode == 0 and sum(one.is_dir() for one in (tmp_path / "plugins").iterdir()) == 1


def test_plug_ins_are_listed_shown_switched_and_removed(tmp_path: Path) -> None:
    """For people and for programs."""
    assert "There are no plug-ins yet" in run_inside(tmp_path, "plugin", "list").stderr
    assert "plug-in 'guard' not found" in run_inside(tmp_path, "plugin", "show", "guard").stderr
    run_inside(tmp_path, "plugin", "install", GUARD, "--yes")

    assert "guard  2.1.0  in use  Keeps secrets" in run_inside(tmp_path, "plugin", "list").stdout
    shape = json.loads(run_inside(tmp_path, "plugin", "show", "guard", "--json").stdout)
    assert (shape["commands"], shape["unused"], len(shape["hooks"])) == (["guard:audit"], "", 3)
    assert run_inside(tmp_path, "plugin", "disable", "guard").returncode == 0
    assert "guard  2.1.0  disabled" in run_inside(tmp_path, "plugin", "list").stdout
    assert "not in use: it is disabled" in run_inside(tmp_path, "plugin", "show", "guard").stdout
    assert "is in use" in run_inside(tmp_path, "plugin", "enable", "guard").stderr
    assert run_inside(tmp_path, "plugin", "remove", "guard", "--yes").returncode == 0
    assert not (tmp_path / "plugins").exists()


def test_a_plug_in_s_servers_come_and_go_with_it(tmp_path: Path) -> None:
    """Registered without being started; a name that is taken leaves everything as it was."""
    source = tmp_path / "source"
    source.mkdir()
    servers = {
        "mem": {"command": "${CLAUDE_PLUGIN_ROOT}/serve", "env": {"KEY": "${MY_KEY}"}},
        "web": {
            "url": "https://a.test/${TEAM}",
            "headers": {"Authorization": "Bearer ${MY_KEY}", "X-Key": "${MY_KEY}"},
        },
    }
    (source / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))

    def names() -> list[str]:
        """The MCP servers that there are."""
        return [row["name"] for row in json.loads(run_inside(tmp_path, "mcp", "list", "--json").stdout)]

    shown = run_inside(tmp_path, "plugin", "install", str(source), "--yes")
    assert "note: .mcp.json: web: `${` inside a text stays as it is" in shown.stdout and "mem: `${`" not in shown.stdout
    assert names() == ["source-mem", "source-web"]
    rows = json.loads(run_inside(tmp_path, "mcp", "list", "--json").stdout)
    assert rows[0]["place"] == f"{tmp_path}/plugins/source/serve" and rows[0]["listed_at"] is None
    assert run_inside(tmp_path, "plugin", "install", str(source), "--yes").returncode == 0
    assert names() == ["source-mem", "source-web"]
    run_inside(tmp_path, "plugin", "disable", "source")
    assert names() == []
    updated = run_inside(tmp_path, "plugin", "install", str(source), "--yes")
    assert "It is disabled: `perdure plugin enable source`" in updated.stderr and "mcp refresh" not in updated.stderr
    assert "disabled" in run_inside(tmp_path, "plugin", "list").stdout and names() == []

    run_inside(tmp_path, "plugin", "enable", "source")
    run_inside(tmp_path, "plugin", "remove", "source", "--yes")
    assert names() == []
