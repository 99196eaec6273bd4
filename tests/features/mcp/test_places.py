"""Where MCP servers over HTTP are: a name is resolved once, and leads inside only where it was registered so."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import httpx2
import pytest

from perdure.core.errors import McpUnreachable
from perdure.features.mcp.pinned import PinnedTransport
from perdure.features.mcp.places import leads_inside, resolve_host
from tests.features.mcp.servers import running
from tests.support.library import open_async
from tests.toolbox.names import PUBLIC, PUBLIC_TOO, Names, certificate
from tests.toolbox.web_site import page, serving

URL = "https://tools.example/mcp"


class Recorder:
    """A transport that notes requests; `away` are addresses that can't be reached."""

    def __init__(self, *away: str) -> None:
        self.away, self.requests = away, list[httpx2.Request]()
        self.transport = httpx2.MockTransport(self._answer)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.url.host in self.away:
            raise httpx2.ConnectError("no route")
        return httpx2.Response(200)

    @property
    def hosts(self) -> list[str]:
        return [request.url.host for request in self.requests]


async def test_a_name_that_rebinds_leads_to_the_address_that_was_judged() -> None:
    """For the whole connection, under the name's own Host and server name."""
    names, recorder = Names([PUBLIC], ["127.0.0.1"]), Recorder()
    transport = PinnedTransport(URL, private=False, resolver=names, inner=recorder.transport)
    async with httpx2.AsyncClient(transport=transport) as client:
        await client.post(f"{URL}?a=b", content=b"x")
        await client.get(URL)

    assert names.lookups == 1
    assert [str(request.url) for request in recorder.requests] == [f"https://{PUBLIC}/mcp?a=b", f"https://{PUBLIC}/mcp"]
    assert {request.headers["host"] for request in recorder.requests} == {"tools.example"}
    assert {request.extensions["sni_hostname"] for request in recorder.requests} == {"tools.example"}


@pytest.mark.parametrize(
    ("private", "answer", "why"),
    [
        (False, ["127.0.0.1"], "this machine"),
        (False, [PUBLIC, "10.0.0.7"], "a private network"),
        (False, ["::ffff:192.168.0.1"], "a private network"),
        (False, ["fd00::1"], "a private network"),
        (True, ["169.254.169.254"], "no MCP server is looked for"),
        (True, ["127.0.0.1", "64:ff9b::a9fe:a9fe"], r"169\.254\.169\.254"),
        (True, ["2002:a9fe:a9fe::1"], r"169\.254\.169\.254"),
        (True, ["fe80::1%eth0"], "no MCP server is looked for"),
        *(
            (True, [place], "no MCP server is looked for")
            for place in ("100.100.100.200", "192.0.0.192", "fd20:ce::254")
        ),
        (True, [], "has no address"),
    ],
)
async def test_nothing_is_sent_where_a_server_may_not_be(private: bool, answer: list[str], why: str) -> None:
    """Whatever else the name leads to."""
    recorder = Recorder()
    transport = PinnedTransport(URL, private=private, resolver=Names(answer), inner=recorder.transport)
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(ConnectionError, match=why):
            await client.get(URL)

    assert recorder.requests == []


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::1", "fd00::1"])
async def test_a_server_inside_is_reached_where_it_was_registered_so(address: str) -> None:
    """By its name."""
    assert await resolve_host("wiki.internal", 80, private=True, resolver=Names([address])) == [address]
    assert await leads_inside("http://wiki.internal/mcp", resolver=Names([PUBLIC, address]))
    assert not await leads_inside("http://wiki.internal/mcp", resolver=Names([PUBLIC]))


async def test_the_next_address_is_tried_and_the_one_that_answers_is_kept() -> None:
    """A session on one of several machines stays there."""
    recorder = Recorder(PUBLIC_TOO)
    names = Names([PUBLIC_TOO, PUBLIC])
    transport = PinnedTransport(URL, private=False, resolver=names, inner=recorder.transport)
    async with httpx2.AsyncClient(transport=transport) as client:
        await client.get(URL)
        await client.get(URL)

    assert recorder.hosts == [PUBLIC_TOO, PUBLIC, PUBLIC]


async def test_no_request_goes_to_another_host() -> None:
    """Even if something in between would follow a redirect."""
    recorder = Recorder()
    transport = PinnedTransport(URL, private=True, resolver=Names([PUBLIC]), inner=recorder.transport)
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(ConnectionError, match=r"another host, elsewhere\.example"):
            await client.get("https://elsewhere.example/mcp")

    assert recorder.requests == []


async def test_the_certificate_is_that_of_the_name(tmp_path: Path) -> None:
    """Though the connection goes to an address."""
    server_context, client_context = certificate("site.test", tmp_path)
    async with serving({"/": page(b"hello")}, ssl=server_context) as site:
        for host, error in (("site.test", None), ("other.test", r"other\.test")):
            url = site.url(host=host, scheme="https")
            transport = PinnedTransport(url, private=True, resolver=Names(["127.0.0.1"]), verify=client_context)
            async with httpx2.AsyncClient(transport=transport) as client:
                if error is None:
                    assert (await client.get(url)).text == "hello"
                    continue
                with pytest.raises(httpx2.ConnectError, match=error):
                    await client.get(url)


async def test_a_server_is_as_private_as_it_was_registered(tmp_path: Path) -> None:
    """What leads inside when it is registered may do so; what was said to be outside is not followed there."""
    with running("--http", "/mcp", tmp_path / "state.json") as server:
        url = server.url.replace("127.0.0.1", "localhost")
        async with await open_async(tmp_path / "agents.db") as perdure:
            made = await perdure.mcp.add("web", url=url)
            added = await perdure.mcp.run("web", "add", {"a": 1, "b": 2})
            changed = await perdure.mcp.update("web", private=False)
            refused = await perdure.mcp.run("web", "add", {"a": 1, "b": 2})
            same = await perdure.mcp.update("web", url=url)
            with pytest.raises(McpUnreachable, match="registered as one outside"):
                await perdure.mcp.add("outside", url=url, private=False)

            assert (made.private, changed.private, same.private) == (True, False, False)
            assert added.text == "3"
            assert (refused.status, "registered as one outside" in refused.text) == ("error", True)
            assert (await perdure.mcp.update("web", url=server.url)).private


@pytest.mark.parametrize("inside", [True, False])
async def test_the_first_connection_settles_what_was_registered_before_it_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    """For good, by where it leads: one that was outside then is not followed inside from the next connection on."""
    file = tmp_path / "agents.db"
    with running("--http", "/mcp", tmp_path / "state.json") as server:
        url = server.url.replace("127.0.0.1", "localhost")
        async with await open_async(file) as perdure:
            await perdure.mcp.add("web", url=url)
        with contextlib.closing(sqlite3.connect(file)) as database, database:
            database.execute("UPDATE mcp_servers SET config = json_remove(config, '$.private')")
        with monkeypatch.context() as patched:
            if not inside:
                patched.setattr("perdure.features.mcp.places.nonpublic_range", lambda address: None)
            async with await open_async(file) as perdure:
                before = (await perdure.mcp.get("web")).server.private
                first = await perdure.mcp.run("web", "add", {"a": 1, "b": 2})
                settled = (await perdure.mcp.get("web")).server.private
        async with await open_async(file) as perdure:
            later = await perdure.mcp.run("web", "add", {"a": 1, "b": 2})
            stored = (await perdure.mcp.get("web")).server.private

    assert (before, first.text, settled, stored) == (None, "3", inside, inside)
    refused = "registered as one outside" in later.text
    assert (later.status, refused) == (("success", False) if inside else ("error", True))


async def test_a_connection_that_fails_settles_nothing(tmp_path: Path) -> None:
    file = tmp_path / "agents.db"
    async with await open_async(file) as perdure:
        await perdure.mcp.add("web", url="http://127.0.0.1:9/mcp", check=False)
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE mcp_servers SET config = json_remove(config, '$.private')")
    async with await open_async(file) as perdure:
        with pytest.raises(McpUnreachable):
            await perdure.mcp.refresh("web")

        assert (await perdure.mcp.get("web")).server.private is None


async def test_a_redirect_is_not_followed_to_another_host(tmp_path: Path) -> None:
    """Whether it is a name of the same machine or another port; nothing is sent there."""
    async with serving({}) as other:
        for location in (other.url("/mcp"), other.url("/mcp", host="localhost")):
            moved = page(b"", status="307 Temporary Redirect", Location=location)
            async with serving({"/mcp": moved}) as site, await open_async(tmp_path / "agents.db") as perdure:
                for kind in ("streamable_http", "sse"):
                    with pytest.raises(McpUnreachable):
                        await perdure.mcp.add("moved", url=site.url("/mcp"), transport=kind, token="a token")

                assert len(site.requests) >= 2
        assert other.requests == []


async def test_a_redirect_on_the_same_host_is_followed(tmp_path: Path) -> None:
    """As to the same path with a slash at its end."""
    async with serving({}) as site:
        site.pages = {"/mcp": page(b"", status="307 Temporary Redirect", Location=site.url("/mcp/"))}
        async with await open_async(tmp_path / "agents.db") as perdure:
            with pytest.raises(McpUnreachable):
                await perdure.mcp.add("moved", url=site.url("/mcp"))

        assert any(head.startswith("POST /mcp/ ") for head in site.requests)
