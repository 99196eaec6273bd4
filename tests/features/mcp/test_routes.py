"""MCP servers over the wire, with the official client: registered, read, called, and never told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from letta_client.types import StreamableHTTPMcpServer

from perdure.testing import calls, says
from tests.features.mcp.servers import COMMAND, Running, running
from tests.server.routed import Routed, new_agent, routed
from tests.support import mcp_raw_server

CANARY = "canary-61be"
RAW = mcp_raw_server.__file__
NOBODY = "mcp_server-00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server over HTTP for all of these tests."""
    with running("--http", "/mcp", tmp_path_factory.mktemp("web") / "state.json") as server:
        yield server


async def registered(server: Routed, web: Running, name: str = "web") -> str:
    config: Any = {
        "mcp_server_type": "streamable_http",
        "server_url": web.url,
        "auth_header": "Authorization",
        "auth_token": f"Bearer {CANARY}",
        "custom_headers": {"X-Team": CANARY, "Accept": "a/b", "content-type": "c/d"},
    }
    made = await server.letta.mcp_servers.create(server_name=name, config=config)
    assert made.id is not None
    return made.id


async def test_a_tool_has_its_servers_name_at_every_door(web: Running) -> None:
    """In lists, of agents too, and where it is found, given, run and taken away; unless another tool has the name."""
    async with routed() as server:
        server_id = await registered(server, web)
        agent = await new_agent(server, tools=["add"])
        path = f"/v1/agents/{agent['id']}"
        (add,) = agent["tools"]
        doors = {
            "agent": (await server.get(path))["tools"],
            "agents": (await server.get("/v1/agents/"))[0]["tools"],
            "tools of the agent": await server.get(f"{path}/tools"),
            "tools": await server.get("/v1/tools/", name="add"),
            "one": [await server.get(f"/v1/tools/{add['id']}")],
            "search": [one["tool"] for one in await server.post("/v1/tools/search", {"query": "add", "limit": 1})],
            "of the server": await server.get(f"{path}/mcp-servers/{server_id}/tools"),
        }
        ran = await server.post(f"{path}/tools/add/run", {"args": {"a": 2, "b": 3}})
        await server.patch(f"{path}/tools/approval/add", {"requires_approval": True})
        rules = (await server.get(path))["tool_rules"]
        await server.library.agent_of(agent["id"]).tools.detach("add")
        left = (await server.get(path))["tools"]
        source = 'def add() -> int:\n    """Add."""\n    return 1\n'
        own = await server.post("/v1/tools/", {"source_code": source})
        both = [(await new_agent(server, name, tools=["add", "web__add"]))["tools"] for name in ("one", "two")]

    assert doors == {door: [add] for door in doors}
    assert (add["name"], ran["func_return"], left) == ("add", "5", [])
    assert [rule["tool_name"] for rule in rules if rule["type"] == "requires_approval"] == ["web__add"]
    assert [sorted(tool["name"] for tool in tools) for tools in both] == [["add", "web__add"]] * 2
    assert own["id"] in {tool["id"] for tool in both[0]}


async def test_rules_hold_for_a_tool_under_its_servers_name(web: Running) -> None:
    """Given with the tool or later, in each field that names one; contradictions are found between both names."""
    after_add = {"type": "constrain_child_tools", "tool_name": "add", "children": ["look", "send_message"]}
    by_output = {"type": "conditional", "tool_name": "look", "child_output_mapping": {"add": "add"}}
    async with routed(calls("web__add", a=2, b=3), says("unasked")) as server:
        await registered(server, web)
        rules = [{"type": "exit_loop", "tool_name": "add"}]
        agent = await new_agent(server, tools=["add", "web__look", "send_message"], tool_rules=rules)
        path = f"/v1/agents/{agent['id']}"
        answer = await server.post(f"{path}/messages", {"messages": [{"role": "user", "content": "go"}]})
        changed = (await server.patch(path, {"tool_rules": [after_add, by_output]}))["tool_rules"]
        both = [*rules, {"type": "continue_loop", "tool_name": "web__add"}]
        refused = await server.http.patch(path, json={"tool_rules": both})
        missing = await server.library.agent_of(agent["id"]).rules.missing()

    assert (agent["tool_rules"][0]["tool_name"], answer["stop_reason"]["stop_reason"]) == ("web__add", "tool_rule")
    assert [rule["tool_name"] for rule in changed] == ["web__add", "web__look"]
    assert (changed[0]["children"], changed[1]["child_output_mapping"]) == (
        ["web__look", "send_message"],
        {"add": "web__add"},
    )
    assert (refused.status_code, missing) == (422, [])


async def test_a_server_is_registered_called_and_removed_by_the_official_client(web: Running) -> None:
    """Its tools are there at once, can be given to an agent, and go with it."""
    async with routed() as server:
        server_id = await registered(server, web)
        one = await server.letta.mcp_servers.retrieve(server_id)
        (listed,) = await server.letta.mcp_servers.list()
        tools = await server.letta.mcp_servers.tools.list(server_id)
        add = next(tool for tool in tools if tool.name == "add")
        ran = await server.letta.mcp_servers.tools.run(add.id, mcp_server_id=server_id, args={"a": 2, "b": 3})
        told = next(tool for tool in tools if tool.name == "show_environment")
        sent = await server.letta.mcp_servers.tools.run(told.id, mcp_server_id=server_id)
        agent = await new_agent(server, tool_ids=[add.id])
        of_agent = await server.get(f"/v1/agents/{agent['id']}/mcp-servers")
        assert [found["id"] for found in of_agent] == [server_id]
        assert await server.get(f"/v1/agents/{(await new_agent(server))['id']}/mcp-servers") == []
        assert isinstance(one, StreamableHTTPMcpServer)
        assert listed == one
        assert (one.server_url, one.auth_header, one.auth_token) == (web.url, "Authorization", "")
        assert one.custom_headers == {"X-Team": "", "Accept": "", "content-type": ""}  # the protocol has its own
        assert (add.tool_type, add.tags) == ("external_mcp", ["mcp:web"])
        assert (ran.status, ran.func_return) == ("success", "5")
        assert json.loads(str(sent.func_return))["headers"]["authorization"] == f"Bearer {CANARY}"
        assert [(tool["name"], tool["json_schema"]["name"]) for tool in agent["tools"]] == [("add", "web__add")]
        same = await server.letta.mcp_servers.tools.retrieve(add.id, mcp_server_id=server_id)
        assert same == add
        await server.letta.mcp_servers.delete(server_id)

        assert await server.letta.mcp_servers.list() == []
        assert (await server.get(f"/v1/agents/{agent['id']}"))["tools"] == []
        assert (await server.refused("GET", f"/v1/mcp-servers/{server_id}"))[0] == 404


async def test_a_clients_own_token_is_not_passed_on(web: Running) -> None:
    """What authorises a client here is nothing to a server that it has a tool called on."""
    async with routed() as server:
        made = await server.post(
            "/v1/mcp-servers/", {"server_name": "bare", "config": {"server_url": web.url, "auth_token": None}}
        )
        path = f"/v1/mcp-servers/{made['id']}/tools"
        told = next(tool for tool in await server.get(path) if tool["name"] == "show_environment")
        answer = await server.http.post(
            f"{path}/{told['id']}/run",
            json={"args": {}},
            headers={"authorization": f"Bearer {CANARY}", "x-api-key": CANARY, "cookie": CANARY},
        )

        assert answer.status_code == 200
        assert CANARY not in answer.text
        assert answer.json()["status"] == "success"


async def test_a_change_keeps_what_is_sent_back_as_it_was_shown(web: Running) -> None:
    """Empty values leave what is stored; the type stays; a held back tool is approved."""
    async with routed() as server:
        server_id = await registered(server, web)
        path = f"/v1/mcp-servers/{server_id}"
        shown = await server.get(path)
        renamed = await server.patch(path, {"server_name": "net", "config": shown})
        assert renamed == {**shown, "server_name": "net"}
        told = next(tool for tool in await server.get(f"{path}/tools") if tool["name"] == "show_environment")
        ran = await server.post(f"{path}/tools/{told['id']}/run", {"args": {}})
        assert json.loads(ran["func_return"])["headers"]["x-team"] == CANARY
        assert (await server.refused("PATCH", path, {"config": {"mcp_server_type": "sse"}}))[0] == 422
        web.state.write_text(json.dumps({"described": "Another."}))
        synced = await server.patch(f"{path}/refresh")
        (look,) = [one for one in await server.get(f"{path}/definitions") if one["name"] == "look"]
        approved = await server.post(f"{path}/approve", {"tools": ["look"]})
        web.state.unlink()

        assert (synced["changed"], look["status"]) == (["look"], "changed")
        assert (look["approved"]["description"], look["offered"]["description"]) == ("Look at something.", "Another.")
        assert (approved["changed"], approved["pending"]) == ([], [])


async def test_what_was_left_out_of_a_listing_is_told(tmp_path: Path) -> None:
    """Among the definitions, and by a refresh; the other tools are there."""
    listing = tmp_path / "listing.json"
    listing.write_text(json.dumps([{"name": "bare"}, {"name": "good", "inputSchema": {"type": "object"}}]))
    async with routed(mcp_stdio="on") as server:
        config = {"command": COMMAND, "args": ["-P", RAW, str(listing)]}
        made = await server.post("/v1/mcp-servers/", {"server_name": "raw", "config": config})
        path = f"/v1/mcp-servers/{made['id']}"
        good, bare = await server.get(f"{path}/definitions")
        synced = await server.patch(f"{path}/refresh")

        assert (good["name"], good["status"]) == ("good", "active")
        assert (bare["name"], bare["status"], bare.keys()) == ("bare", "left_out", good.keys())
        assert synced["left_out"] == [{"name": "bare", "reason": bare["problem"]}]
        assert "input schema" in bare["problem"]


@pytest.mark.parametrize("config", [{"mcp_server_type": "stdio"}, {}])
async def test_programs_are_refused_over_http(config: dict[str, Any]) -> None:
    """403, nothing is run, nothing stored; also the change of one that an admin registered."""
    async with routed() as server:
        body = {"server_name": "shell", "config": {**config, "command": "touch", "args": ["/nowhere/at-all"]}}
        status, detail = await server.refused("POST", "/v1/mcp-servers/", body)
        assert (status, "perdure mcp add" in detail) == (403, True)
        assert await server.get("/v1/mcp-servers/") == []
        made = await server.library.mcp.add("ours", command=COMMAND, environment={"KEY": CANARY}, check=False)
        status, _ = await server.refused("PATCH", f"/v1/mcp-servers/{made.id}", {"config": {"command": "sh"}})

        assert status == 403
        shown = await server.get(f"/v1/mcp-servers/{made.id}")
        assert (shown["command"], shown["env"]) == (COMMAND, {"KEY": ""})


async def test_a_setting_lets_clients_register_programs() -> None:
    """One that can't be started is registered all the same, as with Letta; its tools come when it can."""
    async with routed(mcp_stdio="on") as server:
        body = {"server_name": "gone", "config": {"command": "/nowhere/at-all", "args": [], "env": {"K": CANARY}}}
        made = await server.post("/v1/mcp-servers/", body)

        assert (made["mcp_server_type"], made["env"]) == ("stdio", {"K": ""})
        assert await server.get(f"/v1/mcp-servers/{made['id']}/tools") == []
        assert (await server.refused("PATCH", f"/v1/mcp-servers/{made['id']}/refresh"))[0] == 502


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"server_name": "x"}, 422),
        ({"server_name": "x", "config": {}}, 422),
        ({"server_name": "x y/z", "config": {"server_url": "http://127.0.0.1:9"}}, 422),
        ({"server_name": "x", "config": {"server_url": "file:///x"}}, 422),
        ({"server_name": "x", "config": {"server_url": f"http://a:{CANARY}@x"}}, 422),
        ({"server_name": "x", "config": {"server_url": "http://x", "auth_token": [CANARY]}}, 422),
        ({"server_name": "x", "config": {"server_url": "http://x", "custom_headers": {"A": {"b": CANARY}}}}, 422),
        ({"server_name": "x", "config": {"server_url": "http://x", "custom_headers": {"Host": CANARY}}}, 422),
        ({"server_name": "x", "config": {"mcp_server_type": "carrier pigeon", "auth_token": CANARY}}, 422),
        ({"server_name": "x", "config": CANARY}, 422),
    ],
)
async def test_bad_input_is_refused_without_telling_a_secret(body: dict[str, Any], status: int) -> None:
    """And nothing is stored."""
    async with routed() as server:
        answer = await server.http.post("/v1/mcp-servers/", json=body)

        assert answer.status_code == status, answer.text
        assert CANARY not in answer.text
        assert await server.get("/v1/mcp-servers/") == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("PATCH", "/refresh"),
        ("GET", "/tools"),
        ("GET", "/definitions"),
        ("POST", "/approve"),
        ("GET", "/tools/tool-00000000-0000-4000-8000-000000000000"),
        ("POST", "/tools/tool-00000000-0000-4000-8000-000000000000/run"),
    ],
)
async def test_a_server_that_is_not_there_is_not_found(method: str, path: str) -> None:
    """By every route; what is no id is refused."""
    async with routed() as server:
        assert (await server.refused(method, f"/v1/mcp-servers/{NOBODY}{path}", {}))[0] == 404
        assert (await server.refused(method, f"/v1/mcp-servers/web{path}", {}))[0] == 422


async def test_an_address_where_no_server_is_looked_for_is_refused() -> None:
    """A link-local one, where clouds keep their metadata; nothing is registered, and what is not there is named."""
    async with routed() as server:
        for host in ("169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0"):
            body = {"server_name": "far", "config": {"server_url": f"http://{host}/mcp"}}
            answered = await server.http.post("/v1/mcp-servers/", json=body)
            assert (answered.status_code, "no MCP server is looked for" in answered.text) == (422, True)
        absent = await server.http.get(f"/v1/mcp-servers/{NOBODY}")

        assert await server.get("/v1/mcp-servers/") == []
        assert f"MCP server with ID {NOBODY} not found" in absent.text


async def test_the_servers_of_an_agent_are_used_as_letta_code_does(web: Running) -> None:
    """Its tools of a server under the server's names, a search among them, and a call; why one failed is in stderr."""
    async with routed() as server:
        server_id = await registered(server, web)
        tools = {tool["name"]: tool["id"] for tool in await server.get(f"/v1/mcp-servers/{server_id}/tools")}
        path = f"/v1/agents/{(await new_agent(server, tool_ids=[tools['add']]))['id']}/mcp-servers"
        other = f"/v1/agents/{(await new_agent(server, 'other'))['id']}/mcp-servers"
        search = {"query": "add", "search_mode": "hybrid", "limit": 10}

        assert [tool["name"] for tool in await server.get(f"{path}/{server_id}/tools")] == ["add"]
        assert await server.get(f"{other}/{server_id}/tools") == []
        (hit,) = await server.post(f"{path}/tools/search", search)
        assert (hit["tool"]["id"], hit["tool"]["json_schema"]["parameters"]["required"]) == (tools["add"], ["a", "b"])
        assert await server.post(f"{other}/tools/search", search) == []
        run = f"{path}/{server_id}/tools/{tools['add']}/run"
        ran = await server.post(run, {"args": {"a": 2, "b": 3}})
        failed = await server.post(run, {"args": {"a": "x"}})
        assert (ran["status"], ran["func_return"], ran["stderr"]) == ("success", "5", [])
        assert (failed["status"], failed["stderr"]) == ("error", [failed["func_return"]])
        assert (await server.refused("POST", run.replace(path, other), {"args": {}}))[0] == 404


async def test_a_tools_own_name_is_shown_only_where_it_is_free(web: Running) -> None:
    """Another tool of the name keeps it."""
    async with routed() as server:
        source = 'def add(x: str) -> str:\n    """Add.\n\n    Args:\n        x: value\n    """\n    return x\n'
        await server.post("/v1/tools/", {"source_code": source})
        server_id = await registered(server, web)
        names = {tool["name"] for tool in await server.get(f"/v1/mcp-servers/{server_id}/tools")}

    assert {"web__add", "show_environment"} <= names
    assert "add" not in names


async def test_the_version_of_health_is_one_that_letta_code_accepts() -> None:
    """It warns of a server whose version is below 0.16.6."""
    async with routed() as server:
        version = (await server.letta.health()).version

    assert tuple(map(int, version.split("."))) >= (0, 16, 6)
