"""MCP servers and the definitions of their tools: what was approved, and what the server said last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import DEFAULT_ORG, McpServerId, ToolId
from perdure.core.specs import Tool, ToolSpec
from perdure.features.mcp.tables import Servers
from perdure.features.mcp.values import InvalidEntry, McpServer, McpTool, ToolDefinition
from perdure.storage.tx import Tx
from tests.contracts.base import AT, AWKWARD, LATER, Contract, raises

LOOK = ToolDefinition(
    name="look",
    description=AWKWARD[0],
    parameters={"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": [1, None, "\ud800"]}}},
    annotations={"readOnlyHint": True},
)


class McpContract(Contract):
    def server(self, name: str = "files", **fields: Any) -> McpServer:
        made = McpServer(
            id=McpServerId(self.ids.new("mcp_server")),
            org_id=DEFAULT_ORG,
            name=name,
            transport="stdio",
            command="serve",
            args=("--root", AWKWARD[1]),
            variable_names=("TOKEN",),
            sealed=bytes(range(256)),
            trusted=True,
            created_at=AT,
            updated_at=AT,
        )
        return replace(made, **fields)

    async def test_a_server_comes_back_as_it_was_added(self) -> None:
        """Every field; servers are listed in order of creation and found by name."""
        async with self.open_store() as store:
            files = await store.write(lambda tx: tx.of(Servers).add(self.server()))
            web = await store.write(
                lambda tx: tx.of(Servers).add(
                    self.server(
                        "a web", transport="sse", command="", args=(), url="https://x.example", private=True, sealed=b""
                    )
                )
            )
            assert files == replace(self.server(), id=files.id, org_id=files.org_id, number=files.number)
            assert await store.read(lambda tx: tx.of(Servers).list()) == [files, web]
            assert await store.read(lambda tx: tx.of(Servers).get(web.id)) == web
            assert await store.read(lambda tx: tx.of(Servers).find_by_name("files")) == files
            assert await store.read(lambda tx: tx.of(Servers).find_by_name("absent")) is None
            unsettled = await store.write(lambda tx: tx.of(Servers).put(replace(web, private=None)))
            assert await store.read(lambda tx: tx.of(Servers).get(web.id)) == unsettled
            assert unsettled.private is None
            with raises(AlreadyExists):
                await store.write(lambda tx: tx.of(Servers).add(self.server()))

    async def test_a_server_changes_and_goes(self) -> None:
        """Its names stay unique; whether it was reached is noted by itself."""
        async with self.open_store() as store:
            files = await store.write(lambda tx: tx.of(Servers).add(self.server()))
            web = await store.write(lambda tx: tx.of(Servers).add(self.server("web")))
            left_out = (InvalidEntry(name=AWKWARD[0], reason=AWKWARD[1]), InvalidEntry(name="#2", reason="it is none"))
            await store.write(lambda tx: tx.of(Servers).put_listing(files.id, failure="", at=AT, left_out=left_out))
            await store.write(lambda tx: tx.of(Servers).put_listing(files.id, failure=AWKWARD[0], at=LATER))
            changed = await store.write(
                lambda tx: tx.of(Servers).put(replace(files, name="disk", sealed=b"", trusted=False, updated_at=LATER))
            )
            assert (changed.listed_at, changed.failure, changed.left_out) == (AT, AWKWARD[0], left_out)
            assert await store.read(lambda tx: tx.of(Servers).get(files.id)) == changed
            with raises(AlreadyExists):
                await store.write(lambda tx: tx.of(Servers).put(replace(web, name="disk")))
            await store.write(lambda tx: tx.of(Servers).delete(files.id))
            tool = McpTool(server_id=files.id, name="look", local_name="x")
            gone: list[Callable[[Tx], object]] = [
                lambda tx: tx.of(Servers).get(files.id),
                lambda tx: tx.of(Servers).put(files),
                lambda tx: tx.of(Servers).delete(files.id),
                lambda tx: tx.of(Servers).put_listing(files.id, failure="", at=AT),
                lambda tx: tx.of(Servers).tools(files.id),
                lambda tx: tx.of(Servers).put_tool(tool),
            ]
            for unit in gone:
                with raises(NotFound):
                    await store.write(unit)

    async def test_tools_of_a_server_are_kept_by_their_names(self) -> None:
        """What was approved and what was seen survive to the digest, whatever order keys come in."""
        async with self.open_store() as store:
            files = await store.write(lambda tx: tx.of(Servers).add(self.server()))
            other = await store.write(lambda tx: tx.of(Servers).add(self.server("other")))
            tool_id = ToolId(self.ids.new("tool"))
            look = McpTool(server_id=files.id, name="look", local_name="files__look", pinned=LOOK, tool_id=tool_id)
            await store.write(lambda tx: tx.of(Servers).put_tool(look))
            await store.write(
                lambda tx: tx.of(Servers).put_tool(replace(look, name="a", tool_id=None, pinned=None, seen=LOOK))
            )
            pending, missing = await store.read(lambda tx: tx.of(Servers).tools(files.id))
            assert (pending.status, missing.status) == ("pending", "missing")
            assert missing == look
            assert missing.pinned is not None
            assert missing.pinned.digest == LOOK.digest
            await store.write(lambda tx: tx.of(Servers).put_tool(replace(look, seen=LOOK)))
            found = await store.read(lambda tx: tx.of(Servers).find_tool(tool_id))
            assert found is not None
            assert found.status == "active"
            assert await store.read(lambda tx: tx.of(Servers).tools(other.id)) == []
            await store.write(lambda tx: tx.of(Servers).delete_tool(files.id, "a"))
            with raises(NotFound):
                await store.write(lambda tx: tx.of(Servers).delete_tool(files.id, "a"))
            await store.write(lambda tx: tx.of(Servers).delete(files.id))
            assert await store.read(lambda tx: tx.of(Servers).find_tool(tool_id)) is None

    async def test_a_tool_is_found_by_its_name_at_its_server(self) -> None:
        """Unless another tool has the name, or two servers do."""
        async with self.open_store() as store:
            servers = [
                await store.write(lambda tx, one=one: tx.of(Servers).add(one))  # type: ignore[misc]
                for one in map(self.server, ("a", "b"))
            ]
            tools = [
                Tool(
                    id=ToolId(self.ids.new("tool")),
                    spec=ToolSpec(
                        name=f"{one.name}__look", description="", parameters={}, kind="mcp", tool_type="external_mcp"
                    ),
                )
                for one in servers
            ]
            names: list[list[str]] = []

            async def note() -> None:
                found = await store.read(lambda tx: tx.tools.find("look"))
                shown = await store.read(lambda tx: tx.tools.with_own_names(tx.tools.list()))
                names.append([found.spec.name if found else "", *(one.own_name for one in shown)])

            for server, tool in zip(servers, tools, strict=True):
                await store.write(lambda tx, tool=tool: tx.tools.add(tool, at=AT))  # type: ignore[misc]
                known = McpTool(server_id=server.id, name="look", local_name=tool.spec.name, tool_id=tool.id, seen=LOOK)
                await store.write(lambda tx, known=known: tx.of(Servers).put_tool(known))  # type: ignore[misc]
                await note()
            own = replace(tools[0].spec, name="look", kind="custom", tool_type="custom")
            await store.write(lambda tx: tx.tools.add(Tool(id=ToolId(self.ids.new("tool")), spec=own), at=AT))
            await note()

            assert names == [["a__look", "look"], ["", "look", "look"], ["look", "", "", ""]]
