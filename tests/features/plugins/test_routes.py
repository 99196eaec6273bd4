"""Plug-ins over HTTP and on the dashboard."""

from __future__ import annotations

import json
from pathlib import Path

from tests.features.plugins.files import define, write
from tests.server.routed import new_agent, routed
from tests.ui.browser import dashboard


def install(home: Path) -> None:
    """Two plug-ins in a data folder, the first of which needs the second."""
    for name in ("tidy", "base"):
        define(home / "plugins" / name, "agents", "rev")
    write(home / "plugins" / "tidy" / "commands" / "broken.md", "---\nx: [\n---\n")
    hook = {"event": "PreToolUse", "command": "true", "matcher": "Bash"}
    records = {"tidy": {"version": "1.0", "dependencies": {"base": "^1"}, "hooks": [hook]}, "base": {"version": "1.2"}}
    write(home / "plugins" / "plugins.json", json.dumps(records))


async def test_plug_ins_are_listed_switched_and_removed(tmp_path: Path) -> None:
    """One that another one needs stays."""
    install(tmp_path)
    async with routed(home=str(tmp_path)) as server:
        tidy = await server.get("/v1/plugins/tidy")
        assert [one["name"] for one in await server.get("/v1/plugins")] == ["base", "tidy"]
        assert tidy["agents"] == ["tidy:rev"] and tidy["unused"] == "" and "commands/broken.md" in tidy["problems"][0]
        assert tidy["hooks"] == [{"event": "PreToolUse", "matcher": "Bash", "command": "true", "timeout_s": 60.0}]

        status, why = await server.refused("POST", "/v1/plugins/base/disable")
        assert status == 422 and "needed by tidy" in why
        assert (await server.post("/v1/plugins/tidy/disable", {}))["unused"] == "it is disabled"
        assert (await server.post("/v1/plugins/base/disable", {}))["unused"] == "it is disabled"
        status, why = await server.refused("POST", "/v1/plugins/tidy/enable")
        assert status == 422 and "'base': it is disabled" in why
        await server.post("/v1/plugins/base/enable", {})
        await server.post("/v1/plugins/tidy/enable", {})
        assert await server.delete("/v1/plugins/tidy") == {"name": "tidy"}
        assert (await server.refused("GET", "/v1/plugins/tidy"))[0] == 404
        await server.delete("/v1/plugins/base")
        assert not (tmp_path / "plugins").exists()


async def test_the_page_of_connections_shows_and_switches_them(tmp_path: Path) -> None:
    """With the commands that they run."""
    install(tmp_path)
    async with dashboard(home=str(tmp_path)) as (client, _):
        page = (await client.get("/connections")).text
        assert "Plug-ins" in page and "<code>true</code>" in page and "tidy:rev" in page
        form = {"name": "tidy"}
        page = (await client.post("/connections/plugins/disable", data=form)).text
        assert "tidy is disabled." in page
        page = (await client.post("/connections/plugins/enable", data=form)).text
        assert "tidy is in use." in page
        page = (await client.post("/connections/plugins/remove", data=form)).text
        assert "tidy was removed." in page
        await client.post("/connections/plugins/remove", data={"name": "base"})
        assert "Plug-ins" not in (await client.get("/connections")).text


async def test_files_that_define_nothing_are_listed_for_an_agent(tmp_path: Path) -> None:
    """Of all kinds in the same way, with the line; also where the policy is broken."""
    for kind in ("agents", "commands", "skills/x"):
        name = "SKILL.md" if kind == "skills/x" else "x.md"
        write(tmp_path / kind / name, "---\ndescription: x\nmax_turns: many\n---\n")
    policy = write(tmp_path / "policy" / "policy.toml", "")
    async with routed(home=str(tmp_path), policy=str(policy.parent)) as server:
        agent = await new_agent(server)
        found = await server.get(f"/v1/agents/{agent['id']}/definitions/problems")
        policy.write_text("\nno_such = []")
        broken = await server.get(f"/v1/agents/{agent['id']}/definitions/problems")

    assert [(one["kind"], Path(one["path"]).name, one["line"]) for one in found] == [
        ("agents", "x.md", 3),
        ("commands", "x.md", 3),
        ("skills", "SKILL.md", 3),
    ]
    assert all(one["why"].startswith("max_turns is 'many'") for one in found)
    assert {(one["path"], one["line"]) for one in broken} == {(str(policy), 2)}
