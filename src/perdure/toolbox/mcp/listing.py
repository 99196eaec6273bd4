"""Read a listing of tools entry by entry: an invalid entry is left out with a reason, the others stay.

The protocol's types refuse a listing as a whole when one entry breaks them. So a listing is gone through as it comes
from the transport, before it meets them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.errors import InvalidInput
from perdure.core.mcp import (
    INVALID_ENTRIES_MAX,
    SERVER_TOOLS_MAX,
    Definition,
    InvalidEntry,
    ToolListing,
    parse_definition,
)
from perdure.toolbox.mcp.errors import describe_error

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import Tool

PAGES_MAX = 50
NAME_CHARS = 80
TWICE = "it is listed twice: the first one counts"


LISTED_MAX = 2 * SERVER_TOOLS_MAX
"""So many entries of a listing are looked at, valid or not."""


class InvalidEntries:
    """The entries of the current listing that can't be tools: name -> the first reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._more = 0
        self.page_names: list[str] = []
        """The names of the last page's valid entries."""
        self.known: set[str] = set()
        """The names of all valid entries of the listing so far."""
        self.seen = 0
        """How many entries were looked at so far."""
        self.page_is_empty = False
        """Whether the last page held nothing at all."""

    def clear(self) -> None:
        self._reasons.clear()
        self.known.clear()
        self._more = self.seen = 0

    def add(self, name: object, reason: str, *, place: int = 0) -> None:
        """Note an entry; without a name it gets its `place` in the listing, from 1 on."""
        key = " ".join(name.split())[:NAME_CHARS] if isinstance(name, str) else ""
        key = key or f"#{place}"
        if len(self._reasons) < INVALID_ENTRIES_MAX - 1:
            self._reasons.setdefault(key, reason)
        elif key not in self._reasons:
            self._more += 1

    def all(self) -> tuple[InvalidEntry, ...]:
        """The entries in the order of the listing; those beyond `INVALID_ENTRIES_MAX` are only counted."""
        entries = tuple(InvalidEntry(name=name, reason=reason) for name, reason in self._reasons.items())
        return entries if not self._more else (*entries, InvalidEntry(name="…", reason=f"{self._more:,} more"))


@contextlib.asynccontextmanager
async def filter_listings(transport: Any, invalid: InvalidEntries, version: Callable[[], str]) -> AsyncIterator[Any]:
    """The transport, with listings of tools that hold only what the protocol of this version accepts."""
    async with transport as (read_stream, write_stream):
        yield _FilteredStream(read_stream, invalid, version), write_stream


class _FilteredStream:
    """The stream of a server's messages, with invalid entries removed from listings of tools."""

    def __init__(self, inner: Any, invalid: InvalidEntries, version: Callable[[], str]) -> None:
        self._inner, self._invalid, self._version = inner, invalid, version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def receive(self) -> Any:
        return await self._filter(await self._inner.receive())

    def __aiter__(self) -> _FilteredStream:
        return self

    async def __anext__(self) -> Any:
        return await self._filter(await self._inner.__anext__())

    async def __aenter__(self) -> _FilteredStream:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)

    async def _filter(self, item: Any) -> Any:
        """An item of the stream, without invalid entries if it is a listing of tools."""
        message = getattr(item, "message", None)
        result = getattr(message, "result", None)
        # No other answer has a list of this name.
        if message is not None and isinstance(result, dict) and isinstance(result.get("tools"), list):
            # In a thread: a listing may be as long as its server likes.
            usable = await asyncio.to_thread(self._select_usable, result["tools"])
            message.result = result | {"tools": usable}
        return item

    def _select_usable(self, entries: list[Any]) -> list[Any]:
        """The valid entries of a page; the others are noted with the reason."""
        usable = []
        self._invalid.page_names.clear()
        self._invalid.page_is_empty = not entries
        for place, entry in enumerate(entries, 1):
            name = entry.get("name") if isinstance(entry, Mapping) else None
            if (reason := self._find_excess(name) or _find_error(entry, self._version())) is None:
                usable.append(entry)
                self._invalid.page_names.append(entry["name"])
                self._invalid.known.add(entry["name"])
            else:
                self._invalid.add(name, reason, place=place)
        return usable

    def _find_excess(self, name: object) -> str | None:
        """Why an entry is not looked at; None: it is, and counts."""
        if isinstance(name, str) and name in self._invalid.known:
            return TWICE
        if len(self._invalid.known) >= SERVER_TOOLS_MAX:
            return f"the server has more than {SERVER_TOOLS_MAX} tools: the first ones count"
        if self._invalid.seen >= LISTED_MAX:
            return f"of a listing only {LISTED_MAX:,} entries are looked at"
        self._invalid.seen += 1
        return None


def _find_error(entry: Any, version: str) -> str | None:
    """Why an entry is no tool by our own rules or by the protocol's types; None: it is one."""
    from mcp.types import Tool
    from mcp_types.methods import validate_server_result
    from pydantic import ValidationError

    if isinstance(entry, dict):
        try:
            parse_definition(entry)
        except InvalidInput as error:
            return str(error)  # in plainer words than the types have
    try:
        with contextlib.suppress(KeyError):
            validate_server_result("tools/list", version, {"tools": [entry]})
    except ValidationError as error:
        if any(part["loc"][:2] == ("tools", 0) for part in error.errors()):
            return describe_error(error).replace("tools[0].", "").replace("tools[0]", "its place in the listing")
    try:
        Tool.model_validate(entry, by_name=False)
    except ValidationError as error:
        return describe_error(error)
    return None


async def read_listing(client: Client, invalid: InvalidEntries) -> ToolListing:
    """All tools of a server that can be used, at most `SERVER_TOOLS_MAX`, and the entries left out with the reasons.

    Args:
        invalid: the one of `filter_listings`. It is cleared first.
    Raises: what the SDK raises.
    """
    invalid.clear()
    definitions: dict[str, Definition] = {}
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        looked_at = invalid.seen
        page = await client.list_tools(cursor=cursor)
        await asyncio.to_thread(_add_tools, page.tools, definitions, invalid)
        for name in set(invalid.page_names).difference(tool.name for tool in page.tools):
            invalid.add(name, "its x-mcp-header can't be used, so the protocol has it left out")
        cursor = page.next_cursor
        brings_nothing = invalid.seen == looked_at and not invalid.page_is_empty
        if cursor is None or len(definitions) >= SERVER_TOOLS_MAX or invalid.seen == LISTED_MAX or brings_nothing:
            break
    if cursor is not None:
        invalid.add("…", f"the listing has more pages than were read, for {SERVER_TOOLS_MAX} tools at most")
    return ToolListing(definitions=tuple(definitions.values()), left_out=invalid.all())


def _add_tools(tools: Sequence[Tool], definitions: dict[str, Definition], invalid: InvalidEntries) -> None:
    """Add the definitions of a page's tools."""
    for tool in tools:
        _add_tool(tool, definitions, invalid)


def _add_tool(tool: Tool, definitions: dict[str, Definition], invalid: InvalidEntries) -> None:
    """Add a tool's definition, or note why it is left out."""
    entry = {
        "name": tool.name,
        "description": tool.description or tool.title,
        "inputSchema": tool.input_schema,
        "annotations": tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {},
    }
    try:
        definition = parse_definition(entry)
    except InvalidInput as error:
        invalid.add(tool.name, str(error))
        return
    if definition.name in definitions:
        invalid.add(definition.name, TWICE)
    else:
        definitions[definition.name] = definition
