"""Connect to one MCP server, a child process, streamable HTTP, or the older SSE, and read its listing of tools.

Only what was registered for a server is sent to it: nothing of the environment, of another server, or of a user.

A listing is read entry by entry: an invalid entry is left out with a reason, the others stay. The protocol's types
refuse a listing as a whole when one entry breaks them. So it is gone through as it comes from the transport, before it
meets them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ExtraMissing, InvalidInput
from perdure.core.incoming.bodies import ACCEPT_ENCODING
from perdure.core.secrets import with_secret
from perdure.features.mcp.errors import describe_error
from perdure.features.mcp.values import (
    INVALID_ENTRIES_MAX,
    PROTOCOL_HEADERS,
    SERVER_TOOLS_MAX,
    InvalidEntry,
    McpServer,
    ServerSecrets,
    ToolDefinition,
    ToolListing,
    parse_definition,
)

if TYPE_CHECKING:
    import httpx2
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
        """Return the next message, with invalid entries of listings removed."""
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
    definitions: dict[str, ToolDefinition] = {}
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


def _add_tools(tools: Sequence[Tool], definitions: dict[str, ToolDefinition], invalid: InvalidEntries) -> None:
    """Add the definitions of a page's tools by their names, or note why one is left out."""
    for tool in tools:
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
            continue
        if definition.name in definitions:
            invalid.add(definition.name, TWICE)
        else:
            definitions[definition.name] = definition


CONNECT_S = 10.0
STREAM_READ_S = 600.0
"""How long a stream may be silent before it is closed; calls have limits of their own."""

TAIL_BYTES = 2_000
OLD_VERSION = "2025-11-25"


def is_installed() -> bool:
    """Whether the `mcp` extra is there, without importing it."""
    return importlib.util.find_spec("mcp") is not None


async def load_sdk() -> None:
    """Import the SDK in a thread, since that takes half a second. Raises: ExtraMissing."""
    if not is_installed():
        raise ExtraMissing("an MCP server", extra="mcp")
    await asyncio.to_thread(_import_sdk)
    # It logs what servers send, among it what can't be parsed; a program that wants that sets logging up.
    logging.getLogger("mcp").addHandler(logging.NullHandler())


def _import_sdk() -> None:
    import httpx2  # noqa: F401
    import mcp.client.sse
    import mcp.client.stdio
    import mcp.client.streamable_http  # noqa: F401


class StderrTail(asyncio.Protocol):
    """The end of what a child process writes to stderr. `closed` is set when the process ends."""

    def __init__(self) -> None:
        self._bytes = b""
        self.closed = False

    def data_received(self, data: bytes) -> None:
        """Keep the end of what the program wrote."""
        self._bytes = (self._bytes + data)[-TAIL_BYTES:]

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    @property
    def last_line(self) -> str:
        """The last line that the program wrote."""
        lines = self._bytes.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


@contextlib.asynccontextmanager
async def connect(
    server: McpServer,
    secrets: ServerSecrets,
    *,
    tail: StderrTail,
    invalid: InvalidEntries,
    on_tools_changed: Callable[[], None],
    on_address: Callable[[bool], None],
    on_too_large: Callable[[], None],
) -> AsyncIterator[Client]:
    """A client of the server, after the handshake. The context must be left in the task that entered it.

    Args:
        tail: gets what a child process writes to stderr.
        invalid: gets the entries of listings that can't be tools.
        on_tools_changed: called when the server reports that its tools have changed.
        on_address: called with whether a server over HTTP is on this machine or in a private network.
        on_too_large: called when a child process wrote a line that is too large to be read.
    Raises: what the SDK raises, often in an ExceptionGroup; OSError.
    """
    from mcp import Client
    from mcp.types import Implementation, ToolListChangedNotification

    from perdure.features.mcp.pinned import is_too_large

    async def on_message(message: Any) -> None:
        """Report a changed list of tools, and answers that are too large."""
        if isinstance(message, ToolListChangedNotification):
            on_tools_changed()
        elif is_too_large(message):
            on_too_large()

    def version() -> str:
        """Return the protocol version that was agreed on."""
        try:
            return client.protocol_version
        except RuntimeError:  # it answers before the handshake
            return OLD_VERSION

    async with contextlib.AsyncExitStack() as stack:
        transport = await _transport(server, secrets, tail, on_address, stack)
        client = Client(
            filter_listings(transport, invalid, version),
            message_handler=on_message,
            client_info=Implementation(name="perdure", version="1"),
            cache=None,  # what was listed is kept in the store
        )
        yield await stack.enter_async_context(client)


async def _transport(
    server: McpServer,
    secrets: ServerSecrets,
    tail: StderrTail,
    on_address: Callable[[bool], None],
    stack: contextlib.AsyncExitStack,
) -> Any:
    """The SDK's transport to a server."""
    if server.transport == "stdio":
        return _start_child(server, secrets, tail)
    import httpx2

    from perdure.features.mcp.pinned import PinnedTransport

    url = with_secret(server.url, secrets.query)
    headers = {name: value for name, value in secrets.headers.items() if name.lower() not in PROTOCOL_HEADERS}
    if secrets.token:
        name = server.auth_header or "Authorization"
        scheme = "Bearer " if name.lower() == "authorization" and " " not in secrets.token else ""
        headers[name] = scheme + secrets.token

    def new_client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        """Return an HTTP client that connects only to the server's checked addresses."""
        # Redirects are the SDK's, to the same host only; each passes the transport again.
        return httpx2.AsyncClient(
            headers={"Accept-Encoding": ACCEPT_ENCODING, **(headers or {})},
            timeout=timeout or httpx2.Timeout(CONNECT_S, read=STREAM_READ_S),
            transport=PinnedTransport(url, private=server.private, on_address=on_address),
        )

    if server.transport == "sse":
        from mcp.client.sse import sse_client

        return sse_client(
            url, headers=headers, timeout=CONNECT_S, sse_read_timeout=STREAM_READ_S, httpx_client_factory=new_client
        )
    from mcp.client.streamable_http import streamable_http_client

    return streamable_http_client(url, http_client=await stack.enter_async_context(new_client(headers)))


@contextlib.asynccontextmanager
async def _start_child(server: McpServer, secrets: ServerSecrets, tail: StderrTail) -> AsyncIterator[Any]:
    """Start the server's program in its own process group; yield its streams, then end the whole group.

    Of our environment the program sees only HOME, LOGNAME, PATH, SHELL, TERM and USER, which the SDK passes on.
    """
    from mcp.client.stdio import StdioServerParameters, stdio_client

    from perdure.features.mcp.pinned import LINES

    parameters = StdioServerParameters(
        command=server.command,
        args=list(server.args),
        env=dict(secrets.environment),
        encoding=LINES,
        encoding_error_handler="replace",
    )
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as errors:
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: tail, os.fdopen(read_end, "rb", 0))
        try:
            async with stdio_client(parameters, errlog=errors) as streams:
                errors.close()  # then only the child has it, and its end is seen
                yield streams
        finally:
            pipe.close()
