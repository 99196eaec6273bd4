"""Listings of MCP servers with entries that are no tools: each is left out, with a reason, and the others stay."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import McpUnreachable
from perdure.features.mcp.connect import LISTED_MAX, InvalidEntries, filter_listings, read_listing
from perdure.features.mcp.values import INVALID_ENTRIES_MAX, SERVER_TOOLS_MAX, InvalidEntry
from tests.features.mcp.servers import COMMAND
from tests.support import mcp_raw_server
from tests.support.library import open_async

RAW = mcp_raw_server.__file__
GOOD: dict[str, Any] = {"name": "good", "description": "Do good.", "inputSchema": {"type": "object"}}


def listing(tmp_path: Path, *entries: Any) -> Path:
    """A file that the server lists."""
    file = tmp_path / "listing.json"
    file.write_text(json.dumps(entries))
    return file


async def added(perdure: AsyncPerdure, file: Path) -> tuple[InvalidEntry, ...]:
    """What was left out of the listing of a server that was just added."""
    await perdure.mcp.add("raw", command=COMMAND, args=["-P", RAW, str(file)])
    return (await perdure.mcp.get("raw")).server.left_out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "name", "reason"),
    [
        ({"name": "bare"}, "bare", "its input schema is not an object's"),
        ({"name": "flat", "inputSchema": "text"}, "flat", "its input schema is not an object's"),
        ({"name": "list", "inputSchema": {"type": "array"}}, "list", "its input schema is not an object's"),
        ({"name": "odd", "inputSchema": {"type": "object", "required": 5}}, "odd", "at inputSchema.required"),
        ({"name": "typeless", "inputSchema": {}}, "typeless", "at inputSchema.type"),
        ({"name": "n" * 500, "inputSchema": {"type": "object"}}, "n" * 80, "500 characters, limit 200"),
        ({"inputSchema": {"type": "object"}}, "#1", "its name None can't be used"),
        ({"name": 5, "inputSchema": {"type": "object"}}, "#1", "its name 5 can't be used"),
        ({"name": "said", "description": [1], "inputSchema": {"type": "object"}}, "said", "at description"),
        ({"name": "hints", "annotations": 5, "inputSchema": {"type": "object"}}, "hints", "at annotations"),
        ("a text", "#1", "its place in the listing"),
        (None, "#1", "its place in the listing"),
    ],
)
async def test_an_entry_that_is_no_tool_is_left_out_with_the_reason(
    tmp_path: Path, entry: Any, name: str, reason: str
) -> None:
    """The tool beside it is there, and works."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        (left_out,) = await added(perdure, listing(tmp_path, entry, GOOD))

        assert (left_out.name, reason in left_out.reason) == (name, True), left_out
        assert [tool.name for tool in await perdure.mcp.tools("raw")] == ["good"]
        assert (await perdure.mcp.run("raw", "good")).text == "good"


async def test_what_is_left_out_is_told_by_each_reading(tmp_path: Path) -> None:
    """A tool that becomes unusable so is missing until it is well again; one listed twice counts once."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        assert await added(perdure, listing(tmp_path, GOOD)) == ()
        listing(tmp_path, GOOD | {"inputSchema": 5}, GOOD | {"name": "twice"}, GOOD | {"name": "twice"})
        broken = await perdure.mcp.refresh("raw")
        refused = await perdure.mcp.run("raw", "good")
        listing(tmp_path, GOOD)
        well = await perdure.mcp.refresh("raw")

        assert (broken.missing, broken.pending) == (("good",), ("twice",))
        assert [one.name for one in broken.left_out] == ["good", "twice"]
        assert "listed twice" in broken.left_out[1].reason
        assert (refused.status, "so that it can't be called: its input schema" in refused.text) == ("error", True)
        assert (well.active, well.left_out) == (("good",), ())
        assert (await perdure.mcp.list())[0].left_out == ()


async def test_more_tools_than_are_read_are_told(tmp_path: Path) -> None:
    """The first ones are there; the rest is named up to a limit, then counted."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        entries = [GOOD | {"name": f"tool_{number}"} for number in range(SERVER_TOOLS_MAX + INVALID_ENTRIES_MAX + 5)]
        left_out = await added(perdure, listing(tmp_path, *entries))

        assert len(await perdure.mcp.tools("raw")) == SERVER_TOOLS_MAX
        assert len(left_out) == INVALID_ENTRIES_MAX
        assert f"more than {SERVER_TOOLS_MAX} tools" in left_out[0].reason
        assert left_out[-1] == InvalidEntry(name="…", reason="6 more")


async def test_a_listing_that_is_none_is_refused_as_a_whole(tmp_path: Path) -> None:
    """There is nothing to keep of it."""
    file = tmp_path / "listing.json"
    file.write_text('{"not": "a list"}')
    async with await open_async(tmp_path / "agents.db") as perdure:
        with pytest.raises(McpUnreachable, match="breaks the protocol at tools"):
            await added(perdure, file)

        assert await perdure.mcp.list() == []


def test_the_first_reason_counts_and_names_are_one_line() -> None:
    """However often and however oddly something is named."""
    left_out = InvalidEntries()
    left_out.add("a\n b", "first")
    left_out.add("a b", "second")
    left_out.add("\x00", "third", place=7)
    left_out.add("", "fourth", place=8)

    assert [(one.name, one.reason) for one in left_out.all()] == [("a b", "first"), ("\x00", "third"), ("#8", "fourth")]


class LookedAt(dict[str, Any]):
    """An entry that notes in which threads its schema was looked at."""

    threads: ClassVar[list[int]] = []

    def get(self, key: str, default: Any = None) -> Any:
        if key == "inputSchema":
            self.threads.append(threading.get_ident())
        return super().get(key, default)


class EndlessServer:
    """A client of a server whose every page holds these entries, and names a next one."""

    def __init__(self, entries: list[Any], invalid: InvalidEntries) -> None:
        self.entries, self.invalid, self.pages = entries, invalid, 0

    async def receive(self) -> Any:
        return SimpleNamespace(message=SimpleNamespace(result={"tools": self.entries}))

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
        yield self, None

    def next_cursor(self) -> str | None:
        return f"page-{self.pages}"

    async def list_tools(self, *, cursor: str | None) -> Any:
        self.pages += 1
        async with filter_listings(self.transport(), self.invalid, lambda: "2025-03-26") as (stream, _):
            entries = (await stream.receive()).message.result["tools"]
        tools = [
            SimpleNamespace(
                name=one["name"], description="", title="", input_schema=one["inputSchema"], annotations=None
            )
            for one in entries
        ]
        return SimpleNamespace(tools=tools, next_cursor=self.next_cursor())


class PagedServer(EndlessServer):
    """A client of a server with these pages."""

    def __init__(self, pages: list[list[Any]], invalid: InvalidEntries) -> None:
        super().__init__([], invalid)
        self.rest = pages

    def next_cursor(self) -> str | None:
        return super().next_cursor() if self.rest else None

    async def receive(self) -> Any:
        self.entries = self.rest.pop(0)
        return await super().receive()


@pytest.mark.parametrize(
    ("entries", "looked_at", "tools"),
    [
        ([GOOD | {"name": f"tool_{number}"} for number in range(20_000)], SERVER_TOOLS_MAX, SERVER_TOOLS_MAX),
        ([GOOD] * 20_000, 1, 1),
        ([GOOD | {"name": f"bad {number}", "inputSchema": 5} for number in range(20_000)], LISTED_MAX, 0),
    ],
    ids=["many tools", "one tool again and again", "no tools"],
)
async def test_a_hostile_listing_costs_no_more_than_a_full_one(entries: list[Any], looked_at: int, tools: int) -> None:
    """However many entries and pages there are: so many are looked at, and none in the thread of the event loop."""
    LookedAt.threads.clear()
    invalid = InvalidEntries()
    server = EndlessServer([LookedAt(entry) for entry in entries], invalid)
    listing = await read_listing(server, invalid)  # type: ignore[arg-type]  # it has what is read of a client

    assert len(listing.definitions) == tools
    assert looked_at <= len(LookedAt.threads) <= 4 * looked_at  # several checks read the schema
    assert threading.get_ident() not in LookedAt.threads
    assert server.pages <= 2
    assert len(listing.left_out) <= INVALID_ENTRIES_MAX + 1


async def test_an_empty_page_does_not_end_a_listing() -> None:
    """The protocol allows it: servers filter behind their pages."""
    invalid = InvalidEntries()
    pages = [[], [GOOD | {"name": "first"}], [], [GOOD | {"name": "last"}]]
    listing = await read_listing(PagedServer(pages, invalid), invalid)  # type: ignore[arg-type]

    assert [one.name for one in listing.definitions] == ["first", "last"]
    assert listing.left_out == ()
