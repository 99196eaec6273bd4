"""What one request may multiply by: refused before anything is made of it or written, by the settings of the server."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure import AsyncPerdure, RunFailed, TooMany
from perdure.domain.blocks.units import NewBlock
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says
from tests.support.servers import BASE, MODEL, in_process

FEW = replace(
    Settings(), model=MODEL, blocks_per_agent=4, tags_per_item=2, metadata_limit_chars=100, block_limit_chars=9
)


@pytest.mark.parametrize(
    ("field", "items", "setting"),
    [
        ("memory_blocks", [{"label": "a", "value": "b"}], "BLOCKS_PER_AGENT"),
        ("block_ids", ["block-123e4567-e89b-42d3-a456-426614174000"], "BLOCKS_PER_AGENT"),
        ("tools", ["memory"], "TOOLS_PER_AGENT"),
        ("tags", ["t"], "TAGS_PER_ITEM"),
        ("tool_rules", [{"type": "exit_loop", "tool_name": "a"}], "TOOL_RULES_PER_AGENT"),
        ("initial_message_sequence", [{"role": "user", "content": "a"}], "MESSAGES_PER_REQUEST"),
        ("secrets", [{"key": "A", "value": "b"}], "SECRETS_PER_OWNER"),
        ("identity_ids", ["identity-123e4567-e89b-42d3-a456-426614174000"], "IDENTITIES_PER_AGENT"),
    ],
)
async def test_a_list_that_is_too_long_is_refused_by_its_limit(
    tmp_path: Path, field: str, items: list[Any], setting: str
) -> None:
    """422 with the count, the limit and the setting, and no agent."""
    limit = getattr(Settings(), setting.lower())
    async with in_process(tmp_path) as (client, _):
        answered = await client.post("/v1/agents/", json={"model": MODEL, field: items * (limit + 1)})
        there = await client.get("/v1/agents/count")

        assert answered.status_code == 422
        for told in (f"{limit + 1:,} ", f"`{field}`", f"{limit:,}", f"PERDURE_{setting}"):
            assert told in answered.json()["detail"]
        assert there.json() == 0


async def test_no_object_is_made_of_what_a_list_that_is_too_long_holds(tmp_path: Path) -> None:
    """A hundred thousand items that are none are refused for their number, and not one by one."""
    async with in_process(tmp_path) as (client, _):
        answered = await client.post("/v1/agents/", json={"model": MODEL, "memory_blocks": [0] * 100_000})

        assert answered.json()["detail"].startswith("100,000 blocks for an agent (`memory_blocks`) are too many")


async def test_limits_are_settings_for_library_and_server_alike(tmp_path: Path) -> None:
    """What each of them may make is counted with what is there."""
    models = {MODEL: ScriptedModel()}
    async with await AsyncPerdure.open(tmp_path / "p.db", models=models, settings=FEW) as perdure:
        transport = httpx.ASGITransport(create_app(perdure, ServerConfig()))
        agent = await perdure.create_agent(blocks=[NewBlock(label="a"), NewBlock(label="b")])
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            block = (await client.post("/v1/blocks/", json={"label": "c", "value": ""})).json()["id"]
            full = await client.patch(f"/v1/agents/{agent.id}/core-memory/blocks/attach/{block}")
            answers = [
                await client.patch(f"/v1/agents/{agent.id}", json=body)
                for body in ({"tags": ["a", "b", "c"]}, {"metadata": {"a": "b" * 100}})
            ] + [await client.post("/v1/blocks/", json={"label": "d", "value": "0123456789"})]

        assert full.status_code == 422
        assert "5 blocks for an agent are too many, the limit is 4" in full.json()["detail"]
        assert [answer.status_code for answer in answers] == [422] * 3
        assert [answer.json()["detail"].partition(" (`")[0].partition(" are")[0] for answer in answers] == [
            "3 tags",
            "109 characters of metadata",
            "10 characters in a block",
        ]
        for refused in (
            agent.blocks.create("e"),
            agent.update(tags=["a", "b", "c"]),
            agent.update(metadata={"a": "b" * 100}),
            perdure.create_agent(blocks=[NewBlock(label=f"b{number}") for number in range(5)]),
            perdure.blocks.create("f", "0123456789"),
        ):
            with pytest.raises(TooMany):
                await refused
        assert len(await agent.blocks.list()) == 4


async def test_a_text_to_look_for_that_databases_do_not_take_is_refused(tmp_path: Path) -> None:
    """It was answered with 500."""
    async with in_process(tmp_path) as (client, perdure):
        archive = await perdure.archives.create("a")
        deleted = await client.post(f"/v1/archives/{archive.id}/passages/delete", json={"text": "a" * 60_000})
        listed = await client.get("/v1/agents/", params={"query_text": "a" * 45_000})

        for answer in (deleted, listed):
            assert answer.status_code == 422
            assert "give a shorter one" in answer.json()["detail"]


async def test_memory_that_no_window_holds_ends_a_run_before_it_is_read(tmp_path: Path) -> None:
    """The run says how large it is and which setting it is about; with less the agent answers."""
    models = {MODEL: ScriptedModel(says("hello"))}
    few = replace(Settings(), model=MODEL, memory_limit_chars=50)
    async with await AsyncPerdure.open(tmp_path / "p.db", models=models, settings=few) as perdure:
        agent = await perdure.create_agent(blocks=[NewBlock(label="a", value="b" * 51)])
        with pytest.raises(RunFailed, match=r"51 characters in the blocks of an agent .* PERDURE_MEMORY_LIMIT_CHARS"):
            await agent.send("hi")
        await agent.blocks.update("a", value="b")

        assert (await agent.send("hi")).text == "hello"


async def test_client_tools_that_are_too_large_together_are_refused(tmp_path: Path) -> None:
    """And the message with them."""
    models = {MODEL: ScriptedModel(says("hello"))}
    few = replace(Settings(), model=MODEL, client_limit_chars=200)
    async with await AsyncPerdure.open(tmp_path / "p.db", models=models, settings=few) as perdure:
        agent = await perdure.create_agent()
        tool = {"name": "look", "description": "d" * 200}
        with pytest.raises(TooMany, match="client tools and skills"):
            await agent.send("hi", client_tools=[tool])

        assert await agent.message_count() == 0


async def query_doors(client: httpx.AsyncClient) -> list[tuple[str, str, bool]]:
    """Each route that takes a `query`: (method, path, whether in the body)."""
    document = (await client.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    doors = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if "query" in schemas.get(name, {}).get("properties", {}):
                doors.append((method, path, True))
            elif any(one["name"] == "query" for one in operation.get("parameters", ())):
                doors.append((method, path, False))
    return doors


@pytest.mark.uses("facts")
async def test_every_door_of_a_search_refuses_a_query_that_is_too_long(tmp_path: Path) -> None:
    """Also the agents' own tools, and a search with nothing to search; the document names the doors."""
    models = {
        MODEL: ScriptedModel(
            *(calls(name, query="a " * 30) for name in ("conversation_search", "search_facts")), says("I could not.")
        )
    }
    settings = replace(Settings(), model=MODEL, query_limit_chars=50, embedding="none")
    async with await AsyncPerdure.open(tmp_path / "p.db", models=models, settings=settings) as perdure:
        agent = await perdure.create_agent(tools=["conversation_search", "search_facts"])
        await agent.facts.add("Ada likes tea.")
        transport = httpx.ASGITransport(create_app(perdure, ServerConfig()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            doors = await query_doors(client)
            answers = {}
            for method, path, in_body in doors:
                asked = {"query": "a " * 30, "agent_id": agent.id}
                values: dict[str, Any] = {"json": asked} if in_body else {"params": asked}
                answered = await client.request(method, path.replace("{agent_id}", agent.id), **values)
                answers[f"{method} {path}"] = (answered.status_code, answered.text)
        reply = await agent.send("Look it up.")

    refused = {door for door, (status, text) in answers.items() if status == 422 and "60 characters in a query" in text}
    assert len(doors) >= 9
    assert refused == set(answers), {door: answers[door] for door in set(answers) - refused}
    results = [result.text for message in reply.messages for result in message.results]
    assert len(results) == 2
    assert all("PERDURE_QUERY_LIMIT_CHARS" in text for text in results)


TAGGED = {"tags": ["short", "t" * 1_001]}
DESCRIBED = {"description": "d" * 20_001}


@pytest.mark.parametrize("fields", [TAGGED, DESCRIBED], ids=["tags", "description"])
async def test_no_door_takes_a_tag_or_description_of_any_length(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Of agents, blocks, archives, passages, tools and groups, when they are made and when they are changed."""
    tool = {"source_code": 'def look():\n    """Look."""\n'}
    made = {
        "/v1/agents/": {"model": MODEL},
        "/v1/blocks/": {"label": "b", "value": "v"},
        "/v1/archives/": {"name": "notes"},
        "/v1/tools/": tool,
    }
    async with in_process(tmp_path) as (client, _):
        ids = {path: (await client.post(path, json=body)).json()["id"] for path, body in made.items()}
        agent, archive = ids["/v1/agents/"], ids["/v1/archives/"]
        doors: list[tuple[str, str, dict[str, Any]]] = [
            *(("POST", path, {**body, "name": "other"}) for path, body in made.items() if path != "/v1/tools/"),
            ("POST", "/v1/tools/", {"source_code": tool["source_code"].replace("look", "see")}),
            *(("PATCH", f"{path}{one}", {}) for path, one in ids.items()),
            ("POST", "/v1/agents/", {"model": MODEL, "memory_blocks": [{"label": "b", "value": "v", **fields}]}),
            ("POST", f"/v1/archives/{archive}/passages", {"text": "t"}),
            ("POST", f"/v1/archives/{archive}/passages/batch", {"passages": [{"text": "t", **fields}]}),
            ("POST", f"/v1/agents/{agent}/archival-memory", {"text": "t"}),
            ("POST", "/v1/groups/", {"agent_ids": [agent], "description": "d"}),
        ]
        document = (await client.get("/openapi.json")).json()
        answers = {}
        for method, path, body in doors:
            sent = {**body, **({} if "memory_blocks" in body or "passages" in body else fields)}
            answered = await client.request(method, path, json=sent)
            takes = _takes(document, method, path, fields) or "memory_blocks" in body
            answers[f"{method} {path} {sorted(body)}"] = (answered.status_code, takes, answered.text[:200])

    assert sum(takes for _, takes, _ in answers.values()) >= 7
    assert {door: one for door, one in answers.items() if one[1] and one[0] != 422} == {}


def _takes(document: dict[str, Any], method: str, path: str, fields: dict[str, Any]) -> bool:
    """Whether the document says that a route takes these fields."""
    for pattern, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path) and method.lower() in operations:
            content = operations[method.lower()].get("requestBody", {}).get("content", {}).get("application/json", {})
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            return bool(fields.keys() & document["components"]["schemas"].get(name, {}).get("properties", {}).keys())
    return False
