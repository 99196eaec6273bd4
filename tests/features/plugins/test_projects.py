"""The setting `project` of an agent: the folder whose definitions it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import InvalidInput
from perdure.features.plugins.layers import find_definitions, project_of
from perdure.settings import Settings
from tests.features.plugins.files import define
from tests.server.routed import new_agent, routed
from tests.support.library import open_sync


def test_an_agent_has_the_definitions_of_its_project(tmp_path: Path) -> None:
    """Any folder in the library; an agent without one has none of them."""
    define(tmp_path / "app" / ".claude", "agents", "review", "of claude")
    define(tmp_path / "app" / ".perdure", "agents", "review", "of perdure")
    with open_sync(tmp_path / "perdure.db") as store:
        agent = store.create_agent("ann", settings={"project": str(tmp_path / "app")})
        other = store.create_agent("bob")

        project = project_of(agent.info)
        found = find_definitions("agents", Settings(home=str(tmp_path)), project, features=[])
        assert found.by_name["review"].body == "of perdure" and found.shadowed[0].body == "of claude"
        assert project_of(other.info) is None
        assert project_of(agent.update(settings={}).info) is None


@pytest.mark.parametrize("value", [1, ["x"], "app", "./app", "~/app", "/a\nb", "/" + "a" * 5_000])
def test_a_project_is_the_whole_path_of_a_folder(tmp_path: Path, value: Any) -> None:
    """Nothing else, since the program that uses it may run elsewhere."""
    with open_sync(tmp_path / "perdure.db") as store, pytest.raises(InvalidInput, match="project"):
        store.create_agent("ann", settings={"project": value})


async def test_clients_choose_projects_below_the_roots_only(tmp_path: Path) -> None:
    """Not by `..` or a link either. What the library set stays, and can be taken back."""
    roots = tmp_path / "roots"
    for folder in ("roots/app", "other"):
        (tmp_path / folder).mkdir(parents=True)
    (roots / "link").symlink_to(tmp_path / "other")
    inside = str(roots / "app")
    outside = [str(tmp_path / "other"), f"{inside}/../../other", str(roots / "link"), "/", "roots/app", "/a\0b"]
    async with routed(project_roots=f"/missing:{roots}") as server:
        made = await new_agent(server, project=inside)
        path = f"/v1/agents/{made['id']}"

        assert made["project"] == inside
        for value in outside:
            status, why = await server.refused("PATCH", path, {"project": value})
            assert status == 422 and "PERDURE_PROJECT_ROOTS" in why, value
        assert (await server.get(path))["project"] == inside
        assert "project" not in await server.patch(path, {"project": ""})
    async with routed() as server:
        assert (await server.refused("POST", "/v1/agents/", {"name": "ann", "project": inside}))[0] == 422


@pytest.mark.uses("agent_files")
async def test_an_agent_file_brings_no_project(tmp_path: Path) -> None:
    """Neither as it is exported, nor one that was changed: a client could name any folder by it."""
    async with routed() as server:
        ann = await server.library.create_agent("ann", settings={"project": str(tmp_path)})
        exported = await server.get(f"/v1/agents/{ann.id}/export")
        assert str(tmp_path) not in json.dumps(exported)

        exported["agents"][0]["project"] = "/etc"
        plain = {name: value for name, value in exported.items() if name != "metadata"}
        own = json.loads(json.dumps(exported))
        (copy,) = own["metadata"]["perdure"]["agents"].values()
        copy["settings"]["project"] = "/etc"
        for document in (plain, own):
            file = {"file": ("a.af", json.dumps(document).encode(), "application/json")}
            answer = await server.http.post("/v1/agents/import", files=file, headers={"x-requested-with": "tests"})
            for agent_id in answer.json().get("agent_ids", ()):
                assert "project" not in await server.get(f"/v1/agents/{agent_id}")
        assert project_of((await server.library.agent(str(ann.id))).info) == tmp_path
