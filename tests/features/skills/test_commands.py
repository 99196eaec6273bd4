"""Skills on the command line and on the page of an agent's memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.library import open_sync
from tests.support.programs import run_inside
from tests.ui.browser import dashboard, text_of


def skill(home: Path, *arguments: str) -> Any:
    """The JSON that a command of skills prints."""
    done = run_inside(home, "skill", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_skills_are_written_shown_and_put_away(tmp_path: Path) -> None:
    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann")
    assert {one["layer"] for one in skill(tmp_path, "on", "ann")} == {"built-in"}
    made = skill(tmp_path, "write", "bake", "Flour.", "ann", "--about", "Bake bread")
    skill(tmp_path, "write", "bake", "Flour and water.", "ann")
    shown = run_inside(tmp_path, "skill", "show", "bake", "ann")

    assert (made["version"], made["layer"], made["description"]) == (1, "L3", "Bake bread")
    assert "Flour and water." in shown.stdout
    assert [one["version"] for one in skill(tmp_path, "versions", "bake", "ann")] == [2, 1]
    assert [one["name"] for one in skill(tmp_path, "search", "water", "ann")] == ["bake"]
    assert skill(tmp_path, "protect", "bake", "ann")["is_protected"]
    assert not skill(tmp_path, "protect", "bake", "ann", "--off")["is_protected"]
    assert skill(tmp_path, "archive", "bake", "ann")["archived_at"]
    assert [one["name"] for one in skill(tmp_path, "list", "ann", "--archived")] == ["bake"]
    assert skill(tmp_path, "restore", "bake", "ann", "--version", "1")["text"] == "Flour."
    refused = run_inside(tmp_path, "skill", "write", "bake", "The password is hunter2.", "ann")
    assert refused.returncode == 1 and "refused by the rule 'no_credential'" in refused.stderr


async def test_the_page_shows_skills_and_brings_them_back() -> None:
    """With where each is from; an agent without skills has no such list."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/memory"
        assert "working-alone" not in text_of((await client.get(where)).text)
        await agent.skills.enable()
        await agent.skills.write("bake-bread", "Flour.", description="Bake <bread>")
        page = text_of((await client.get(where)).text)
        archived = await client.post(f"{where}/skills/bake-bread/archive")
        gone = await agent.skills.list(archived=True)
        back = await client.post(f"{where}/skills/bake-bread/restore")

        await agent.skills.write("bake-bread", "Flour and water.")
        versions = text_of((await client.get(f"{where}?skill=bake-bread")).text)
        older = await client.post(f"{where}/skills/bake-bread/restore", data={"version": "1"})
        said = (await agent.skills.get("bake-bread")).text
        wrong = await client.post(f"{where}/skills/bake-bread/restore", data={"version": "x"})
        protected = await client.post(f"{where}/skills/bake-bread/protect", data={"on": "yes"})
        is_protected = (await agent.skills.get("bake-bread")).is_protected
        free = await client.post(f"{where}/skills/bake-bread/protect", data={"on": "no"})

        assert "Versions of bake-bread" in versions and "+Flour and water." in versions.replace("+ ", "+")
        assert "says again what version 1 said" in text_of(older.text) and said == "Flour."
        assert "is not a version's number" in text_of(wrong.text)
        assert "Only people can change the skill now" in text_of(protected.text) and is_protected
        assert "The agent may change the skill now" in text_of(free.text)
        assert not (await agent.skills.get("bake-bread")).is_protected
        assert "Versions of" not in page
        assert "working-alone" in page and "Bake <bread>" in page
        assert "only searches find it" in text_of(archived.text) and [one.name for one in gone] == ["bake-bread"]
        assert "The skill is back." in text_of(back.text)
        assert await agent.skills.list(archived=True) == []
