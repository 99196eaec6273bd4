"""Skills over HTTP: written, read, found, put away and brought back; wrong values refused."""

from __future__ import annotations

import pytest

from tests.server.routed import new_agent, routed

NOBODY = "agent-00000000-0000-4000-8000-000000000000"


async def test_a_skill_is_written_read_found_and_put_away() -> None:
    async with routed() as server:
        path = f"/v1/agents/{(await new_agent(server))['id']}/skills"
        enabled = await server.post(f"{path}/enable", None)
        made = await server.put(f"{path}/bake", {"text": "Flour.", "description": "Bake bread"})
        await server.put(f"{path}/bake", {"text": "Flour and water."})
        await server.put(f"{path}/oven", {"text": "The oven is in the kitchen.", "layer": "L2"})

        assert {one["layer"] for one in enabled} == {"built-in"}
        assert (made["version"], made["text"], made["files"], made["uses"]) == (1, "Flour.", [], 0)
        assert (await server.get(f"{path}/bake"))["text"] == "Flour and water."
        versions = await server.get(f"{path}/bake/versions")
        assert [one["version"] for one in versions] == [2, 1]
        assert versions[0]["diff"].endswith("-Flour.\n+Flour and water.")
        assert [one["name"] for one in await server.get(f"{path}/search", query="kitchen")] == ["oven"]
        assert await server.get(f"{path}/problems") == {"problems": []}
        assert (await server.post(f"{path}/bake/archive", None))["archived_at"] is not None
        assert "bake" not in [one["name"] for one in await server.get(path)]
        assert [one["name"] for one in await server.get(path, archived=True)] == ["bake"]
        assert (await server.post(f"{path}/bake/restore", {"version": 1}))["text"] == "Flour."
        assert (await server.post(f"{path}/bake/protect", {}))["is_protected"]
        assert not (await server.post(f"{path}/bake/protect", {"protected": False}))["is_protected"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("PUT", "bake", {"text": "The password is hunter2."}, 422, "refused by the rule 'no_credential'"),
        ("PUT", "read_skill", {"text": "x"}, 422, "refused by the rule 'named'"),
        ("PUT", "bake", {"text": "x", "layer": "L1"}, 422, "layer"),
        ("PUT", "bake", {"text": " "}, 422, "text"),
        ("GET", "bake", None, 404, "skill 'bake' not found"),
        ("POST", "working-alone/archive", None, 404, "skill 'working-alone' not found"),
        ("POST", "bake/restore", {"version": "x"}, 422, "version"),
    ],
)
async def test_wrong_values_are_refused(method: str, path: str, body: object, status: int, told: str) -> None:
    async with routed() as server:
        agent = await new_agent(server)
        found = await server.refused(method, f"/v1/agents/{agent['id']}/skills/{path}", body)

        assert found[0] == status and told in found[1]
        assert (await server.refused("GET", f"/v1/agents/{NOBODY}/skills"))[0] == 404
