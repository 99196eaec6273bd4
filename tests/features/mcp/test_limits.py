"""However much an MCP server sends, no more of it is read than a limit, and whoever waits for it is told."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from perdure.core.errors import McpUnreachable
from perdure.core.incoming.http_answers import bound_body
from perdure.core.incoming.json_limits import JsonLimits
from perdure.features.mcp.pinned import ANSWER, LINES, TOO_LARGE
from tests.support.library import open_async
from tests.toolbox.web_site import page, serving

FULL = b'{"jsonrpc":"2.0","id":1,"result":{"a":[0' + b',{"":[]}' * 1_100_000 + b"]}}"
LONG = b'{"jsonrpc":"2.0","id":1,"result":{"a":"' + b"x" * (17 << 20) + b'"}}'
SMALL = b'{"jsonrpc":"2.0","id":1,"result":{"a":"[{[{"}}'

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    match asked["method"]:
        case "initialize":
            result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "flood", "version": "1"}}
        case "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("full", "fine")]}
        case _:
            result = {"content": [{"type": "text", "text": "fine"}]}
            name = asked["params"].get("name")
            if name == "full":
                sys.stdout.write('{"":[' + "[]," * 300_000 + "0]}\\n")
            elif name == "long":
                for _ in range(17):
                    sys.stdout.write("x" * 1_000_000)
                sys.stdout.write("\\n")
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def decoded(*pieces: bytes) -> str:
    import codecs

    decoder = codecs.getincrementaldecoder(LINES)(errors="replace")
    return "".join(decoder.decode(piece) for piece in pieces) + decoder.decode(b"", True)


def test_lines_come_whole_and_within_limits() -> None:
    """However they are cut; one that is too large is a line of its own, and the next is read."""
    text = '{"a": "é"}\n{"b": [1]}\n{"c'.encode()
    assert decoded(*(text[at : at + 1] for at in range(len(text)))) == '{"a": "é"}\n{"b": [1]}\n{"c\n'
    assert decoded(b"\xff\n") == "\ufffd\n"

    tracemalloc.start()
    try:
        pieces = [b"x" * 65_536] * (40 << 4)
        assert decoded(*pieces, b"\n", SMALL, b"\n", FULL, b"\n") == f"{TOO_LARGE}\n{SMALL.decode()}\n{TOO_LARGE}\n"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * ANSWER.size_bytes


async def test_a_child_that_sends_too_much_is_left_and_found_again(tmp_path: Path) -> None:
    """The call is told at once, not at its time limit, and the next call meets a new process."""
    program = tmp_path / "flood.py"
    program.write_text(SERVER)
    async with await open_async(tmp_path / "agents.db") as perdure:
        await perdure.mcp.add("flood", command=sys.executable, args=["-S", str(program)])
        result = await perdure.mcp.run("flood", "full")
        assert (result.status, "too large to be read" in result.text) == ("error", True)
        assert (await perdure.mcp.run("flood", "fine")).text == "fine"


async def test_half_a_character_ends_no_connection(tmp_path: Path) -> None:
    """Models give one; the process that answered the call was ended for it, with all that it was doing."""
    program = tmp_path / "echo.py"
    program.write_text(SERVER.replace('"text": "fine"', '"text": str(asked["params"].get("arguments"))'))
    async with await open_async(tmp_path / "agents.db") as perdure:
        await perdure.mcp.add("echo", command=sys.executable, args=["-S", str(program)])
        result = await perdure.mcp.run("echo", "fine", {"a": ["half \ud83d"]})

    assert (result.status, result.text) == ("success", "{'a': ['half \ufffd']}")


async def pieces(data: bytes, size: int = 65_536) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def read(kind: str, data: bytes, encoding: str = "", size: int = 65_536) -> bytes:
    headers = {"content-type": kind} | ({"content-encoding": encoding} if encoding else {})
    response = httpx2.Response(200, headers=headers, content=pieces(data, size))
    bound_body(response, whole=ANSWER, event=ANSWER)
    return await response.aread()


async def test_answers_over_http_are_checked_before_they_are_parsed() -> None:
    """As one object, or as an event; packed or not."""
    for body in (FULL, LONG):
        with pytest.raises(httpx2.StreamError, match="is not read"):
            await read("application/json", body)
        with pytest.raises(httpx2.SSEError, match="is not read"):
            await read("text/event-stream", b"data: " + body + b"\n\n")
        with pytest.raises(httpx2.StreamError, match="is not read"):
            await read("application/json; charset=utf-8", gzip.compress(body, 1), "gzip")
    with pytest.raises(httpx2.StreamError, match="can be read"):
        await read("application/json", b"x", "gzip, gzip")
    for kind in ("text/json", "application/vnd.api+json", "application/octet-stream", ""):  # clients parse those too
        with pytest.raises(httpx2.StreamError, match="is not read"):
            await read(kind, b"\r\n" + FULL)
    with pytest.raises(httpx2.StreamError, match="UTF-8"):
        await read("application/json", SMALL.decode().encode("utf-16"))
    assert await read("application/json", gzip.compress(SMALL), "gzip") == SMALL
    assert await read("text/html", b"<html>" + b"[" * 1_000) == b"<html>" + b"[" * 1_000


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("size", [1_000, 1_001, 65_536])
async def test_a_stream_may_go_on_when_its_events_are_small(end: bytes, size: int) -> None:
    """What counts is one event: of the others nothing is kept, wherever their ends are cut."""
    event = b"data: " + json.dumps([[[]] * 3_000] * 10).encode() + end
    stream = event * 30
    assert await read("text/event-stream", stream, size=size) == stream


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
async def test_events_are_told_apart_that_come_byte_by_byte(end: bytes) -> None:
    """Each end then lies in pieces of its own."""
    stream = (b"data: [[]]" + end) * 200
    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=pieces(stream, 1))
    bound_body(response, whole=ANSWER, event=JsonLimits(size_bytes=100, containers=10))

    assert await response.aread() == stream


async def test_an_answer_is_read_as_it_was_checked() -> None:
    """In another encoding there would be other brackets in it."""
    response = httpx2.Response(
        200, headers={"content-type": "application/json; charset=utf-7"}, content=pieces(b'["+AFsAew-"]', 65_536)
    )
    bound_body(response, whole=ANSWER, event=ANSWER)
    await response.aread()

    assert response.text == '["+AFsAew-"]'


async def test_a_server_that_answers_too_much_can_not_be_added(tmp_path: Path) -> None:
    """It is told why; the SDK is never given it."""
    async with (
        serving({"/mcp": page(LONG, kind="application/json")}) as site,
        await open_async(tmp_path / "agents.db") as perdure,
    ):
        with pytest.raises(McpUnreachable, match="larger than 16,777,216 bytes"):
            await perdure.mcp.add("web", url=site.url("/mcp"))
