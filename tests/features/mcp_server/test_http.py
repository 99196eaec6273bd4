"""`/mcp` of a server: the SDK's client over streamable HTTP, with keys, scopes and organisations."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.core.ids import DEFAULT_ORG, AgentId
from perdure.core.incoming.principals import LOCAL, Principal
from perdure.features.access.service import Access, remove_organisation
from perdure.server.config import ServerConfig
from tests.features.mcp_server.clients import READING, TOOLS, files_with, opened, over_http, refused, said
from tests.support.servers import in_process, served

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
KEY = "the server's own key, of some length"


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """The body of a request that calls a tool."""
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def test_the_sdks_client_uses_every_tool_resource_and_prompt(tmp_path: Path) -> None:
    async with served(tmp_path) as (address, _), over_http(f"{address}/mcp?project=demo") as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        told = await said(client, "memory_remember", text="My name is Ada and I live in Ghent.")
        block = await said(client, "memory_edit_block", label="human", append="Name: Ada")
        await said(client, "note", kind="plan", title="A plan", fields={"goal": "win"})
        await said(client, "index_output", text="one\ntwo")
        nudge = await said(client, "track", files=[f"{number % 2}.py" for number in range(8)])
        answers = [
            await said(client, "memory_context", about="Ada"),
            await said(client, "memory_search", query="where does Ada live?"),
            await said(client, "memory_entity", name="Ada"),
            await said(client, "memory_timeline"),
            await said(client, "memory_list", kind="passages"),
        ]
        asked = await said(client, "search_output", output="output:1", query="two")
        path = await refused(client, "index_output", path="/etc/passwd")
        await said(client, "memory_forget", undo="project:1")
        uris = [str(one.uri) for one in (await client.list_resources()).resources]
        human: Any = (await client.read_resource("memory://global/blocks/human")).contents[0]
        prompt: Any = (await client.get_prompt("catch_up")).messages[0].content

    assert tools == TOOLS and "(project)" in told and "(global)" in block
    assert all("Ghent" in answer for answer in answers) and "two" in asked
    assert "write it down" in nudge and "reads no files" in path
    assert len(uris) == 6 and human.text == "Name: Ada" and "A plan" in prompt.text


async def test_the_query_names_the_memory(tmp_path: Path) -> None:
    """`?project=`, `?agent=`, `?nudges=`; without any it is the global one. The memory of a folder is named by its
    path, so that programs on this machine and over HTTP share it."""
    async with served(tmp_path) as (address, perdure):
        await perdure.create_agent("ann")
        for query in ("", "?project=one", "?project=two", "?agent=ann"):
            async with over_http(f"{address}/mcp{query}") as client:
                await said(client, "memory_remember", text=f"told to '{query}'")
        lists = {}
        for query in ("", "?project=one", "?project=two", "?agent=ann"):
            async with over_http(f"{address}/mcp{query}") as client:
                lists[query] = await said(client, "memory_list", kind="passages")
        async with over_http(f"{address}/mcp?agent=nobody") as client:
            error = await refused(client, "memory_list", kind="passages")
            with pytest.raises(Exception, match="nobody"):
                await client.list_resources()
        async with httpx.AsyncClient() as http:
            wrong = await http.post(f"{address}/mcp?nudges=loud", headers=HEADERS, json=call("memory_context"))

    for query, listed in lists.items():
        assert {one for one in lists if f"told to '{one}'" in listed} == {query, ""}
    assert "nobody" in error and wrong.status_code == 422 and "loud" in wrong.text


@pytest.mark.uses("access")
async def test_keys_decide_what_a_client_may(tmp_path: Path) -> None:
    """Without one: 401; a read-only key reads, one of a user writes, a builder's makes agents and blocks, as over the
    API."""
    config = ServerConfig(port=0, api_key=KEY)
    async with served(tmp_path, config=config) as (address, perdure):
        ports = perdure.app.ports
        access = Access(ports.store, ports.clock, ports.ids, LOCAL)
        keys = {scope: (await access.create_key(scope, scope))[1] for scope in ("read-only", "user", "builder")}
        url = f"{address}/mcp?project=demo"
        async with over_http(url, keys["user"]) as client:
            new = [
                await refused(client, "memory_remember", text="x"),
                await refused(client, "index_output", text="x"),
                await refused(client, "track", files=["x"]),
            ]
            agents = await perdure.agents()
        async with over_http(url, keys["builder"]) as client:
            await said(client, "memory_remember", text="written by the builder")
        async with over_http(url, keys["user"]) as client:
            new += [
                await refused(client, "memory_edit_block", label="human", value="x"),
                await refused(client, "memory_edit_block", label="new", value="x", level="project"),
            ]
            await said(client, "memory_edit_block", label="project", value="x")
            await said(client, "memory_remember", text="written by the user")
        async with over_http(url, keys["read-only"]) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            found = await said(client, "memory_list", kind="passages")
            errors = [
                await refused(client, "memory_remember", text="x"),
                await refused(client, "memory_forget", undo="project:1"),
                await refused(client, "index_output", text="x"),
            ]
        async with httpx.AsyncClient() as http:
            bare = await http.post(url, headers=HEADERS, json=call("memory_context"))

    assert tools == READING and "written by the user" in found
    assert all("only reads" in error for error in errors)
    assert list(agents) == [] and all("scope 'builder', and yours has 'user'" in error for error in new)
    assert bare.status_code == 401


@pytest.mark.uses("access")
async def test_each_write_is_in_the_audit_log(tmp_path: Path) -> None:
    """With the user, the key, the tool and the agent; what only reads, or is refused, is not."""
    async with served(tmp_path, config=ServerConfig(port=0, api_key=KEY)) as (address, perdure):
        ports = perdure.app.ports
        access = Access(ports.store, ports.clock, ports.ids, LOCAL)
        dora = await access.create_user("dora")
        key, text = await access.create_key("laptop", "builder", user_id=dora.id)
        async with over_http(f"{address}/mcp?project=demo", text) as client:
            told = await said(client, "memory_remember", text="My name is Ada.")
            await said(client, "memory_edit_block", label="human", append="Ada", level="global")
            note = await said(client, "note", kind="plan", title="A plan", fields={"goal": "win"})
            await said(client, "note", id=note.partition(", ")[2].partition(" ")[0], archive=True)
            await said(client, "index_output", text="x")
            await said(client, "track", files=["a.py"])
            await said(client, "memory_forget", id=told.split()[2])
            await said(client, "memory_forget", undo="project:1")
            await said(client, "memory_search", query="Ada")
            await refused(client, "memory_forget", id="fact-none")
        entries = [one for one in await access.audit() if one.action.startswith("POST /mcp")][::-1]
        names = {agent.id: agent.name.partition("-")[0] for agent in await perdure.agents()}

    assert {(one.user_id, one.key_id) for one in entries} == {(dora.id, key.id)}
    assert [(one.action.removeprefix("POST /mcp "), names[AgentId(one.object_id)]) for one in entries] == [
        *(("agent", "demo"), ("memory_remember", "demo")),
        *(("agent", "global"), ("memory_edit_block", "global")),
        *((tool, "demo") for tool in ("note", "note", "index_output", "track", "memory_forget", "memory_forget")),
    ]


@pytest.mark.uses("access")
async def test_organisations_see_nothing_of_each_other(tmp_path: Path) -> None:
    """Neither memory nor outputs nor counts of edits, of a project with the same name."""
    config = ServerConfig(port=0, api_key=KEY)
    async with served(tmp_path, config=config) as (address, perdure):
        ports = perdure.app.ports
        acme = await Access(ports.store, ports.clock, ports.ids, LOCAL).create_organisation("Acme")
        keys = [
            (await Access(ports.store, ports.clock, ports.ids, Principal(org_id=org)).create_key("k", "builder"))[1]
            for org in (DEFAULT_ORG, acme.id)
        ]
        url = f"{address}/mcp?project=demo"
        async with over_http(url, keys[0]) as client:
            told = await said(client, "memory_remember", text="My name is Ada and I live in Ghent.")
            await said(client, "memory_edit_block", label="human", append="Ada's own")
            await said(client, "index_output", text="Ada's output")
            await said(client, "track", files=["a.py"])
        ids = [word.strip("(),.") for word in told.split() if word.startswith(("passage-", "(fact-"))]
        async with over_http(url, keys[1]) as client:
            seen = [
                await said(client, "memory_context", about="Ada"),
                await said(client, "memory_search", query="Ada"),
                *[await said(client, "memory_list", kind=kind) for kind in ("blocks", "passages", "facts", "outputs")],
                *[await refused(client, "memory_forget", id=id) for id in ids],
                await refused(client, "search_output", output="output:1", query="Ada"),
                await said(client, "track", files=["b.py"]),
                str(await client.list_resources()),
            ]

    assert len(ids) == 2 and not any("Ada" in text.replace("Ada'. memory", "") for text in seen[2:])
    assert "Ghent" not in "".join(seen) and "1 edit in 1 file" in seen[-2]


async def test_outputs_of_this_machine_are_out_of_reach(tmp_path: Path) -> None:
    """Whatever the query names: a project's path, its agent, or the global memory. Memory itself is shared."""
    folder = tmp_path / "project"
    folder.mkdir()
    async with served(tmp_path) as (address, perdure):
        for project in (folder, None):
            async with opened(perdure, project) as client:
                await said(client, "index_output", text="a private log", title="private")
        (agent,) = [one for one in await perdure.agents() if one.name != "global-memory"]
        for query in (f"?project={folder}", f"?agent={agent.id}", f"?agent={agent.name}", ""):
            async with over_http(f"{address}/mcp{query}") as client:
                await said(client, "index_output", text="a shared log")
                assert "private" not in await said(client, "memory_list", kind="outputs")
                assert "private" not in await said(client, "search_output", output="output:1", query="log")
        async with opened(perdure, folder) as client:
            own = await said(client, "search_output", output="output:1", query="log")

    assert "private" in own


@pytest.mark.uses("access")
async def test_a_deleted_organisation_leaves_no_files(tmp_path: Path, home: Path) -> None:
    async with served(tmp_path, config=ServerConfig(port=0, api_key=KEY)) as (address, perdure):
        ports = perdure.app.ports
        access = Access(ports.store, ports.clock, ports.ids, LOCAL)
        acme = await access.create_organisation("Acme")
        _, key = await Access(ports.store, ports.clock, ports.ids, Principal(org_id=acme.id)).create_key("k", "builder")
        async with over_http(f"{address}/mcp?project=demo", key) as client:
            await said(client, "index_output", text="the secret of Acme")
        kept = files_with(home, "Acme")
        await access.delete_organisation(acme.id)
        await remove_organisation(ports.store, acme.id, None, clock=ports.clock)
        left = files_with(home, "Acme")

    assert (len(kept), left) == (1, [])


@pytest.mark.slow
async def test_requests_that_are_no_calls(tmp_path: Path) -> None:
    """Broken and deep JSON, other methods and types are answered with a status, and nothing is written."""
    async with in_process(tmp_path) as (client, perdure):
        broken = await client.post("/mcp", headers=HEADERS, content=b"{bad")
        deep = await client.post("/mcp", headers=HEADERS, content=b"[" * 100_000 + b"]" * 100_000)
        large = await client.post("/mcp", headers=HEADERS, content=b'"' + b"x" * 200_000_000 + b'"')
        other = [await client.request(method, "/mcp") for method in ("GET", "DELETE", "PUT")]
        form = await client.post("/mcp", data={"a": "b"})
        agents = await perdure.agents()

    assert broken.status_code == 400 and broken.json()["error"]["code"] == -32700
    assert deep.status_code == 422 and large.status_code == 413 and form.status_code == 415
    assert [(one.status_code, one.headers["allow"]) for one in other] == [(405, "POST")] * 3
    assert agents == []


async def test_requests_at_once_are_answered_and_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The SDK has lines for each request; appends to one block from a hundred requests are all kept."""
    with caplog.at_level(logging.INFO):
        async with served(tmp_path) as (address, perdure), httpx.AsyncClient(timeout=60, headers=HEADERS) as http:
            url = f"{address}/mcp?project=demo"
            append = [call("memory_edit_block", label="project", append=f"line {number}") for number in range(100)]
            answers = await asyncio.gather(*(http.post(url, json=body) for body in append))
            listed = await http.post(url, json=call("memory_list", kind="blocks"))
            agents = await perdure.agents()
    text = listed.json()["result"]["content"][0]["text"]

    assert all(not one.json()["result"]["isError"] for one in answers)
    assert all(f"line {number}\n" in f"{text}\n" for number in range(100))
    assert [record for record in caplog.records if record.name.startswith("mcp")] == []
    assert len(agents) == 1  # though many requests were the first
