"""Where clients of the API may have the server connect to: an MCP server inside is registered by whoever may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure.core.errors import InvalidInput
from perdure.features.mcp.routes import McpGuard
from perdure.features.mcp.wire import McpServerIn
from perdure.server.config import ServerConfig
from perdure.settings import Settings
from tests.features.mcp.servers import Running, running
from tests.server.routed import Routed, routed

BASE = "/v1/tools/mcp/servers"
SHARED = ServerConfig(api_key="shared-key-71")
NAMED = ServerConfig(allowed_hosts=("agents.example.org",))
INSIDE = (
    "http://127.0.0.1:9/mcp",
    "http://10.1.2.3/mcp",
    "http://[::1]:9/x",
    "http://localhost:9/mcp",
    "http://0x7f.1/",
)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running("--http", "/mcp", tmp_path_factory.mktemp("web") / "state.json") as server:
        yield server


async def refusals(server: Routed, url: str, name: str = "web") -> set[tuple[int, bool]]:
    """(status, whether the setting is named) of every route that takes an address."""
    older = {"server_name": name, "server_url": url}
    asked: list[tuple[str, str, Any]] = [
        ("POST", "/v1/mcp-servers/", {"server_name": name, "config": {"server_url": url}}),
        ("PUT", BASE, older),
        ("POST", f"{BASE}/test", older),
        ("POST", f"{BASE}/connect", older),
    ]
    found = [await server.refused(*one) for one in asked]
    return {(status, "PERDURE_MCP_PRIVATE" in detail) for status, detail in found}


@pytest.mark.parametrize(("config", "settings"), [(SHARED, {}), (NAMED, {}), (None, {"mcp_private": "off"})])
async def test_servers_inside_are_refused_where_others_use_the_api(
    config: ServerConfig | None, settings: dict[str, Any]
) -> None:
    """By every route, however the address is written; the error names the setting, nothing is stored."""
    async with routed(config=config, **settings) as server:
        for url in INSIDE:
            assert await refusals(server, url) == {(403, True)}, url

        assert await server.get("/v1/mcp-servers/") == []


@pytest.mark.parametrize(("config", "settings"), [(None, {}), (SHARED, {"mcp_private": "on"})])
async def test_servers_inside_are_registered_where_that_is_allowed(
    web: Running, config: ServerConfig | None, settings: dict[str, Any]
) -> None:
    """By this machine's own clients, and by others where the setting says so."""
    async with routed(config=config, **settings) as server:
        made = await server.post("/v1/mcp-servers/", {"server_name": "web", "config": {"server_url": web.url}})

        assert await server.get(f"/v1/mcp-servers/{made['id']}/tools")
        assert (await server.library.mcp.get("web")).server.private


async def test_what_others_register_is_one_outside() -> None:
    """Also a change: the name is not followed inside, whoever answers for it later."""
    async with routed(config=SHARED) as server:
        made = await server.library.mcp.add("ours", url="http://10.1.2.3/mcp", check=False)
        path = f"/v1/mcp-servers/{made.id}"
        changed = await server.patch(path, {"config": {"server_url": "https://93.184.216.34/mcp"}})

        assert changed["server_url"] == "https://93.184.216.34/mcp"
        assert not (await server.library.mcp.get("ours")).server.private
        guard = McpGuard(server.app.state.gate, server.library)
        body = McpServerIn.model_validate({"server_name": "web", "config": {"server_url": "https://93.184.216.34/"}})
        assert (await guard.new_options(body.config))["private"] is False


async def test_the_address_of_a_server_inside_stays_the_admins() -> None:
    """Others may rename it and send back what they were shown, but not move it, not even to another path."""
    async with routed(config=SHARED) as server:
        made = await server.library.mcp.add("ours", url="http://127.0.0.1:9/mcp", check=False)
        path = f"/v1/mcp-servers/{made.id}"
        shown = await server.get(path)
        renamed = await server.patch(path, {"server_name": "theirs", "config": shown})
        told = [
            await server.refused("PATCH", path, {"config": {"server_url": "http://127.0.0.1:9/other"}}),
            await server.refused("PATCH", f"{BASE}/theirs", {"server_url": "http://127.0.0.1:10/mcp"}),
        ]

        assert renamed == {**shown, "server_name": "theirs"}
        assert [(status, "PERDURE_MCP_PRIVATE" in detail) for status, detail in told] == [(403, True)] * 2
        server_now = (await server.library.mcp.get("theirs")).server
        assert (server_now.url, server_now.private) == ("http://127.0.0.1:9/mcp", True)


def test_the_setting_is_on_or_off() -> None:
    with pytest.raises(InvalidInput, match="PERDURE_MCP_PRIVATE is 'maybe'"):
        Settings(mcp_private="maybe")
