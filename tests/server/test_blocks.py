"""The routes of blocks, as clients see them."""

from __future__ import annotations

from typing import Any

import pytest
from letta_client.types import AgentState, BlockResponse

from perdure.domain.blocks.units import LIMIT_CHARS_MAX
from perdure.server.wire.http import Order
from tests.contracts.base import AWKWARD
from tests.server.routed import JSON, new_agent, routed

NOBODY = "agent-00000000-0000-4000-8000-000000000000"
NOTHING = "block-00000000-0000-4000-8000-000000000000"

BLOCK_FIELDS = [
    *("value", "limit", "project_id", "template_name", "is_template", "template_id", "base_template_id"),
    *("deployment_id", "entity_id", "preserve_on_migration", "label", "read_only", "description", "metadata"),
    *("hidden", "id", "created_by_id", "last_updated_by_id", "tags"),
]
"""Names in the order in which Letta's server sends them."""


def labels(blocks: list[Any]) -> list[str]:
    return [block["label"] for block in blocks]


async def test_a_block_has_all_fields_of_the_wire() -> None:
    """In Letta's order, with its defaults, as the official client's types want it."""
    async with routed() as server:
        made = await server.post("/v1/blocks/", {"label": "q", "value": "z"})
        BlockResponse.model_validate(made)

        assert list(made) == BLOCK_FIELDS
        assert (made["limit"], made["description"], made["metadata"], made["tags"]) == (100_000, None, {}, [])
        assert (made["read_only"], made["is_template"], made["hidden"]) == (False, False, None)
        assert made["preserve_on_migration"] is False
        assert await server.get(f"/v1/blocks/{made['id']}") == made
        assert await server.get("/v1/blocks/") == await server.get("/v1/blocks") == [made]


async def test_everything_that_was_given_is_given_back() -> None:
    """Also what means nothing here."""
    async with routed() as server:
        given = {
            "label": "q",
            "value": "z",
            "limit": 7,
            "description": "What for.",
            "read_only": True,
            "metadata": {"a": {"b": [1, None]}},
            "tags": ["x", "y"],
            "is_template": True,
            "hidden": True,
            "template_name": "mine",
            "template_id": "t",
            "base_template_id": "b",
            "deployment_id": "d",
            "entity_id": "e",
            "project_id": "p",
            "preserve_on_migration": True,
        }
        made = await server.post("/v1/blocks/", given)
        assert {name: made[name] for name in given} == given

        changed = await server.patch(f"/v1/blocks/{made['id']}", {"metadata": {"c": 1}, "entity_id": "f"})
        assert changed == made | {"metadata": {"c": 1}, "entity_id": "f"}
        again = await server.patch(f"/v1/blocks/{made['id']}", {"description": None, "metadata": None})
        assert again == changed


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"value": "z"}, "body.label"),
        ({"label": "q"}, "body.value"),
        ({"label": "q", "value": None}, "body.value"),
        ({"label": "q", "value": 5}, "body.value"),
        ({"label": "", "value": "z"}, "label"),
        ({"label": "two words", "value": "z"}, "two words"),
        ({"label": "q", "value": "z", "limit": 0}, "body.limit"),
        ({"label": "q", "value": "z", "limit": LIMIT_CHARS_MAX + 1}, "body.limit"),
        ({"label": "q", "value": "z", "tags": "x"}, "body.tags"),
        ({"label": "q", "value": "z", "metadata": "x"}, "body.metadata"),
        ({"label": "q", "value": "z", "read_only": "perhaps"}, "body.read_only"),
    ],
)
async def test_a_block_that_cannot_be_made_is_not_made(body: dict[str, Any], named: str) -> None:
    """The answer names the field or the value."""
    async with routed() as server:
        status, detail = await server.refused("POST", "/v1/blocks/", body)

        assert (status, named in detail) == (422, True), detail
        assert await server.get("/v1/blocks/") == []


async def test_a_value_over_the_limit_is_refused() -> None:
    """In a new block, with an agent, by a new value and by a new limit; a limit that comes with it counts."""
    async with routed() as server:
        body = {"label": "a", "value": "x" * 50, "limit": 20}
        refused = [await server.refused("POST", "/v1/blocks/", body)]
        refused.append(await server.refused("POST", "/v1/agents/", {"name": "n", "memory_blocks": [body]}))
        path = f"/v1/blocks/{(await server.post('/v1/blocks/', {**body, 'value': 'x' * 20}))['id']}"
        refused.append(await server.refused("PATCH", path, {"value": "x" * 30}))
        refused.append(await server.refused("PATCH", path, {"limit": 10}))

        for (status, detail), size, limit in zip(refused, (50, 50, 30, 20), (20, 20, 20, 10), strict=True):
            assert status == 422
            assert f"block 'a' would hold {size} characters, its limit is {limit}" in detail
        assert await server.get("/v1/agents/") == []
        assert (await server.patch(path, {"value": "x" * 30, "limit": 30}))["limit"] == 30
        assert (await server.patch(path, {"description": "d"}))["limit"] == 30
        assert (await server.post("/v1/blocks/", {"label": "b", "value": "x" * 100_001}))["limit"] == 100_001


async def test_any_text_comes_back() -> None:
    """Also what no database column and no UTF-8 has; numbers that JSON has no word for are refused."""
    async with routed() as server:
        awkward = [text for text in AWKWARD if text]
        for text in awkward:
            made = await server.post_raw("/v1/blocks/", {"label": "q", "value": text, "metadata": {text: [text]}})
            assert (made["value"], made["metadata"]) == (text, {text: [text]})
        assert [block["value"] for block in await server.get("/v1/blocks/")] == awkward

        for number in ("NaN", "Infinity", "1e999"):
            content = f'{{"label": "q", "value": "z", "metadata": {{"a": [{number}]}}}}'
            answer = await server.http.post("/v1/blocks/", content=content, headers=JSON)
            assert (answer.status_code, "body.metadata" in answer.text) == (422, True)


async def test_metadata_sent_back_unchanged_loses_nothing() -> None:
    """A client that sends back the metadata it was shown keeps what only the wire knows of a block."""
    async with routed() as server:
        made = await server.post(
            "/v1/blocks/", {"label": "q", "value": "z", "metadata": {"a": 1}, "template_name": "robot"}
        )

        changed = await server.patch(f"/v1/blocks/{made['id']}", {"metadata": made["metadata"], "value": "y"})

        assert changed == {**made, "value": "y"}


async def test_an_agents_blocks_by_label() -> None:
    """Read and change by label, also one with a slash; a change is seen by all who share the block."""
    async with routed() as server:
        made = await new_agent(
            server, memory_blocks=[{"label": "human", "value": "Ann"}, {"label": "system/notes", "value": "n"}]
        )
        path = f"/v1/agents/{made['id']}/core-memory/blocks"

        assert await server.get(f"{path}/human") == made["blocks"][0]
        assert await server.get(f"{path}/system/notes") == made["blocks"][1]
        assert await server.get(f"{path}/system%2Fnotes") == made["blocks"][1]
        changed = await server.patch(f"{path}/human", {"value": "Anna", "description": "Who."})
        assert (changed["value"], changed["description"]) == ("Anna", "Who.")
        assert await server.get(f"/v1/blocks/{changed['id']}") == changed
        assert labels(await server.get(path)) == ["system/notes", "human"]
        assert labels(await server.get(path, order="asc")) == ["human", "system/notes"]

        status, detail = await server.refused("GET", f"{path}/nope")
        assert (status, detail) == (404, "memory block 'nope' not found: there are human, system/notes")
        assert (await server.refused("PATCH", f"{path}/nope", {"value": "x"}))[0] == 404
        assert (await server.refused("PATCH", f"{path}/human", {"label": "system/notes"}))[0] == 409
        assert (await server.refused("GET", f"/v1/agents/{NOBODY}/core-memory/blocks"))[0] == 404
        assert (await server.refused("GET", f"/v1/agents/{NOBODY}/core-memory/blocks/human"))[0] == 404


async def test_blocks_are_attached_and_detached() -> None:
    """Each answers with the agent; an agent has one block of a label."""
    async with routed() as server:
        ann, bob = await new_agent(server, "ann"), await new_agent(server, "bob")
        block = await server.post("/v1/blocks/", {"label": "shared", "value": "x"})
        twin = await server.post("/v1/blocks/", {"label": "shared", "value": "y"})

        def path(agent: Any, verb: str, block_id: str) -> str:
            return f"/v1/agents/{agent['id']}/core-memory/blocks/{verb}/{block_id}"

        for agent in (ann, bob, ann):
            state = await server.patch(path(agent, "attach", block["id"]))
            AgentState.model_validate(state)
            assert labels(state["blocks"]) == ["shared"]
        assert (await server.refused("PATCH", path(ann, "attach", twin["id"])))[0] == 409
        having = await server.get(f"/v1/blocks/{block['id']}/agents")
        assert [agent["name"] for agent in having] == ["bob", "ann"]

        assert (await server.patch(path(ann, "detach", block["id"])))["blocks"] == []
        assert (await server.refused("PATCH", path(ann, "detach", block["id"])))[0] == 404
        assert (await server.refused("PATCH", path(ann, "attach", NOTHING)))[0] == 404
        assert (await server.refused("PATCH", path({"id": NOBODY}, "attach", block["id"])))[0] == 404
        assert (await server.refused("PATCH", path(ann, "attach", "x")))[0] == 422
        assert [agent["name"] for agent in await server.get(f"/v1/blocks/{block['id']}/agents")] == ["bob"]


async def test_lists_are_filtered() -> None:
    """By label, parts of label, value and description, tags, templates and how many agents have it."""
    async with routed() as server:
        for body in (
            {"label": "human", "value": "Likes Tea", "tags": ["a", "b"]},
            {"label": "human", "value": "likes coffee", "description": "The 2nd person", "tags": ["a"]},
            {"label": "persona", "value": "100% robot", "is_template": True, "template_name": "robot"},
            {"label": "ghost", "value": "boo", "hidden": True},
        ):
            await server.post("/v1/blocks/", body)
        blocks = await server.get("/v1/blocks/")
        for agent in ("one", "two"):
            await new_agent(server, agent, block_ids=[blocks[0]["id"]])
        await new_agent(server, "three", block_ids=[blocks[1]["id"]])

        async def find(**params: Any) -> list[int]:
            ids = [block["id"] for block in blocks]
            return [ids.index(block["id"]) for block in await server.get("/v1/blocks/", **params)]

        assert await find() == [0, 1, 2]
        assert await find(order="desc") == [2, 1, 0]
        assert len(await server.get("/v1/blocks/", show_hidden_blocks=True)) == 4
        assert await find(label="human") == [0, 1]
        assert await find(label_search="ERSO") == [2]
        assert await find(value_search="LIKES") == [0, 1]
        assert await find(value_search="100%") == [2]
        assert await find(value_search="1_0") == []
        assert await find(description_search="2ND") == [1]
        assert await find(templates_only=True) == [2]
        assert await find(name="robot") == [2]
        assert await find(name="other") == []
        assert await find(tags="a") == [0, 1]
        assert await find(tags=["a", "b"], match_all_tags=True) == [0]
        assert await find(connected_to_agents_count_gt=0) == [0, 1]
        assert await find(connected_to_agents_count_lt=2) == [1, 2]
        assert await find(connected_to_agents_count_eq=[0, 2]) == [0, 2]
        assert await find(identity_id="identity-123e4567-e89b-42d3-a456-426614174000") == []
        assert await server.get("/v1/blocks/count") == 3
        assert await server.get("/v1/blocks/count", tags=["a", "b"], match_all_tags=True) == 1
        assert await server.get("/v1/blocks/count", label_search="nothing") == 0
        assert (await server.refused("GET", "/v1/blocks/", connected_to_agents_count_gt=-1))[0] == 422


async def test_the_official_client_meets_every_block_once() -> None:
    """All blocks, an agent's blocks and a block's agents, whatever the order."""
    async with routed() as server:
        letta = server.letta
        memory = [{"label": f"b{number}", "value": ""} for number in range(5)]
        agent = await new_agent(server, memory_blocks=memory)
        ids = [block["id"] for block in agent["blocks"]]
        agents = [agent["id"], *[(await new_agent(server, block_ids=ids[:1]))["id"] for _ in range(4)]]

        assert [block.id async for block in letta.blocks.list(limit=2)] == ids
        assert [block.id async for block in letta.agents.blocks.list(agent["id"], limit=2)] == ids[::-1]
        assert [one.id async for one in letta.blocks.agents.list(ids[0], limit=2)] == agents[::-1]
        ways: list[tuple[Order, list[str], list[str]]] = [("asc", ids, agents), ("desc", ids[::-1], agents[::-1])]
        for order, expected, having in ways:
            assert [block.id async for block in letta.blocks.list(limit=2, order=order)] == expected
            of_agent = letta.agents.blocks.list(agent["id"], limit=2, order=order)
            assert [block.id async for block in of_agent] == expected
            assert [one.id async for one in letta.blocks.agents.list(ids[0], limit=2, order=order)] == having


async def test_the_official_client_has_its_way() -> None:
    """Create, retrieve, update, attach, by label, delete, as its own methods do it."""
    async with routed() as server:
        letta = server.letta
        agent = await new_agent(server)
        block = await letta.blocks.create(label="human", value="Ann", read_only=True)
        await letta.agents.blocks.attach(block.id, agent_id=agent["id"])
        assert (await letta.agents.blocks.retrieve("human", agent_id=agent["id"])).value == "Ann"
        assert (await letta.agents.blocks.update("human", agent_id=agent["id"], value="Bob")).value == "Bob"
        assert (await letta.blocks.update(block.id, description="Who.")).description == "Who."
        assert (await letta.blocks.retrieve(block.id)).value == "Bob"
        await letta.agents.blocks.detach(block.id, agent_id=agent["id"])
        assert await letta.blocks.delete(block.id) is None
        assert (await server.refused("GET", f"/v1/blocks/{block.id}"))[0] == 404


async def test_unknown_blocks_are_not_found() -> None:
    """404 for an id that is nothing's, 422 for a text that is no id."""
    async with routed() as server:
        for method, tail in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/agents")):
            body: Any = {} if method == "PATCH" else None
            assert (await server.refused(method, f"/v1/blocks/{NOTHING}{tail}", body))[0] == 404
            assert (await server.refused(method, f"/v1/blocks/x{tail}", body))[0] == 422
