"""Identities over HTTP, in the shapes of the client's types."""

from __future__ import annotations

import json
from typing import Any

from letta_client.types import AgentState
from letta_client.types.agent_state import Identity

from tests.server.routed import Routed, new_agent, routed

NOBODY = "identity-00000000-0000-4000-8000-000000000000"
EMAIL = {"key": "email", "value": "ann@example.com", "type": "string"}


async def new_identity(server: Routed, key: str = "ann", **fields: Any) -> Any:
    body = {"identifier_key": key, "name": key.title(), "identity_type": "user", **fields}
    made = await server.post("/v1/identities/", body)
    Identity.model_validate(made, strict=True)
    return made


async def put(server: Routed, path: str, body: Any) -> Any:
    answered = await server.http.put(path, json=body)
    assert answered.status_code == 200, answered.text
    return answered.json()


async def test_an_identity_is_made_found_changed_and_removed() -> None:
    """With its properties; its key is unique, and free again when it is gone."""
    async with routed() as server:
        values = [
            EMAIL,
            {"key": "age", "value": 3, "type": "number"},
            {"key": "x", "value": {"a": [1]}, "type": "json"},
        ]
        ann, bob = await new_identity(server, properties=values), await new_identity(server, "bob", project_id="p1")
        path = f"/v1/identities/{ann['id']}"

        async def find(**query: Any) -> list[str]:
            return [one["identifier_key"] for one in await server.get("/v1/identities/", **query)]

        assert (await server.get(path), ann["properties"]) == (ann, values)
        assert await find() == ["bob", "ann"]
        assert await find(order="asc", limit=1) == await find(after=bob["id"]) == await find(name="NN") == ["ann"]
        assert await find(project_id="p1") == await find(identifier_key="bob") == ["bob"]
        assert await find(identity_type="org") == await find(project_id="p2") == []
        assert await server.get("/v1/identities/count") == 2
        changed = await server.patch(path, {"name": "Anna", "properties": [EMAIL], "identity_type": None})
        assert changed == {**ann, "name": "Anna", "properties": [EMAIL]}
        new_email = {**EMAIL, "value": "b@example.com"}
        age = {"key": "age", "value": True, "type": "boolean"}
        assert (await put(server, f"{path}/properties", [new_email, age]))["properties"] == [new_email, age]
        taken = {"identifier_key": "ann", "name": "x", "identity_type": "user"}
        status, detail = await server.refused("POST", "/v1/identities/", taken)
        assert (status, "ann" in detail) == (409, True)
        assert await server.delete(path) is None
        assert (await server.refused("GET", path))[0] == 404
        assert (await new_identity(server))["id"] != ann["id"]


async def test_an_identity_is_put_by_its_key() -> None:
    """Made the first time, then changed; what is left out stays, and a project has keys of its own."""
    async with routed() as server:
        body = {"identifier_key": "ann", "name": "Ann", "identity_type": "user", "properties": [EMAIL]}
        made = await put(server, "/v1/identities/", body)
        again = await put(server, "/v1/identities/", {**body, "name": "Anna", "properties": None})
        other = await put(server, "/v1/identities/", {**body, "project_id": "p1"})

        assert again == {**made, "name": "Anna"}
        assert other["id"] != made["id"]
        for wrong in ({"identifier_key": ""}, {"identity_type": "cat"}, {"properties": [{"key": "a"}]}):
            assert (await server.refused("PUT", "/v1/identities/", {**body, **wrong}))[0] == 422


async def test_agents_and_blocks_belong_to_identities() -> None:
    """Set at creation and by changes, attached and detached, shown by the agent, and filtered by."""
    async with routed() as server:
        ann = await new_identity(server)
        block = await server.post("/v1/blocks/", {"label": "notes", "value": "x"})
        first = await new_agent(server, "first", identity_ids=[ann["id"]])
        second = await new_agent(server, "second")
        bob = await new_identity(server, "bob", agent_ids=[second["id"]], block_ids=[block["id"]])
        path = f"/v1/agents/{first['id']}"

        async def agents(**query: Any) -> list[str]:
            return [agent["name"] for agent in await server.get("/v1/agents/", **query)]

        AgentState.model_validate_json(json.dumps(first), strict=True)
        assert first["identity_ids"] == [ann["id"]]
        assert first["identities"] == [{**ann, "agent_ids": [first["id"]]}]
        assert (bob["agent_ids"], bob["block_ids"]) == ([second["id"]], [block["id"]])
        assert await agents(identity_id=ann["id"]) == await agents(identifier_keys="ann") == ["first"]
        assert await agents(identifier_keys=["ann", "bob"]) == ["second", "first"]
        assert await agents(identity_id=NOBODY) == await agents(identifier_keys="an") == []
        assert await server.get("/v1/blocks/", identity_id=bob["id"]) == [block]
        assert await server.get("/v1/blocks/", identifier_keys="ann") == []
        assert await server.get(f"/v1/identities/{bob['id']}/blocks") == [block]
        await server.letta.agents.identities.attach(bob["id"], agent_id=first["id"])
        listed = await server.get(f"/v1/identities/{bob['id']}/agents")
        assert [agent["name"] for agent in listed] == ["second", "first"]
        assert await server.get(f"/v1/identities/{bob['id']}/agents", limit=1, after=second["id"]) == listed[1:]
        assert (await server.patch(path, {"name": "one"}))["identity_ids"] == [ann["id"], bob["id"]]
        await server.letta.agents.identities.detach(ann["id"], agent_id=first["id"])
        assert (await server.get(path))["identity_ids"] == [bob["id"]]
        assert (await server.patch(path, {"identity_ids": [ann["id"]]}))["identity_ids"] == [ann["id"]]
        assert (await server.patch(path, {"identity_ids": []}))["identities"] == []
        await server.patch(f"/v1/identities/{bob['id']}", {"agent_ids": [first["id"]], "block_ids": []})
        state = await server.get(f"/v1/identities/{bob['id']}")
        assert (state["agent_ids"], state["block_ids"]) == ([first["id"]], [])
        of_block = f"/v1/blocks/{block['id']}/identities"
        for _ in range(2):
            assert await server.patch(f"{of_block}/attach/{bob['id']}") == block
        assert (await server.get(f"/v1/identities/{bob['id']}"))["block_ids"] == [block["id"]]
        assert await server.patch(f"{of_block}/detach/{bob['id']}") == block
        for path in (f"{of_block}/detach/{bob['id']}", f"{of_block}/attach/{NOBODY}"):
            assert (await server.refused("PATCH", path))[0] == 404


async def test_an_unknown_identity_is_named() -> None:
    """Nothing is written then."""
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}"
        for method, place, body in (
            ("PATCH", f"{path}/identities/attach/{NOBODY}", None),
            ("PATCH", f"{path}/identities/detach/{NOBODY}", None),
            ("PATCH", path, {"name": "other", "identity_ids": [NOBODY]}),
            ("GET", f"/v1/identities/{NOBODY}/agents", None),
            ("GET", f"/v1/identities/{NOBODY}/blocks", None),
            ("DELETE", f"/v1/identities/{NOBODY}", None),
        ):
            status, detail = await server.refused(method, place, body)
            assert (status, NOBODY in detail) == (404, True), (place, detail)
        wrong = {"identifier_key": "a", "name": "a", "identity_type": "org", "agent_ids": [NOBODY]}
        assert (await server.refused("POST", "/v1/identities/", wrong))[0] == 422
        assert await server.get("/v1/identities/") == []
        assert await server.get(path) == agent
