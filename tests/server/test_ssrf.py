"""Addresses that a client, a model or a tool chose: none leads to this machine, its network, or the cloud's metadata.

Every place where the server fetches gets every input. A stand-in for the network notes each connection that is
attempted: those to public addresses lead to one site, which redirects, all others count as reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from perdure import AsyncPerdure, Settings
from perdure.core.errors import PerdureError
from perdure.core.messages import ImageLink
from perdure.server.config import ServerConfig
from perdure.server.serving.app import Api, create_app
from perdure.testing import InlineStore, ScriptedModel, calls, says
from perdure.toolbox.sandbox.proxy import ForwardProxy, admit_listed
from perdure.toolbox.web_guard import nonpublic_range
from tests.support.servers import BASE, MODEL
from tests.toolbox.names import PUBLIC

KEY = "the key of the server, of some length"

INSIDE = {
    "loopback": (
        *("http://127.0.0.1/", "http://127.0.0.2/", "http://127.255.255.254/", "http://localhost/"),
        *("http://localhost./", "http://0.0.0.0/", "http://[::1]/", "http://[::]/", "http://127.0.0.1./"),
    ),
    "private": (
        *("http://10.0.0.1/", "http://10.255.255.254/", "http://172.16.0.1/", "http://172.31.255.254/"),
        *("http://192.168.0.1/", "http://192.168.255.254/", "http://100.64.0.1/", "http://198.18.0.1/"),
        *("http://[fc00::1]/", "http://[fd12:3456::1]/", "http://[fec0::1]/"),
    ),
    "link-local": (
        *("http://169.254.169.254/latest/meta-data/", "http://169.254.170.2/", "http://[fe80::1]/"),
        *("http://168.63.129.16/", "http://100.100.100.200/", "http://[fd00:ec2::254]/"),
    ),
    "mapped": (
        *("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::ffff:a9fe:a9fe]/"),
        *("http://[::ffff:10.0.0.1]/", "http://[::127.0.0.1]/", "http://[64:ff9b::7f00:1]/"),
        *("http://[64:ff9b::10.0.0.1]/", "http://[2002:7f00:1::]/", "http://[2002:a9fe:a9fe::1]/"),
    ),
    "decimal": (
        *("http://2130706433/", "http://2852039166/", "http://0x7f000001/", "http://0x7f.1/", "http://0/"),
        *("http://017700000001/", "http://0177.0.0.1/", "http://127.1/", "http://127.0.1/", "http://10.1/"),
        *("http://0x7f.0x0.0x0.0x1/", "http://%31%32%37.0.0.1/", "http://①②⑦.0.0.1/", "http://127。0。0。1/"),
    ),
    "names": (
        *("http://inside-1.test/", "http://inside-2.test/", "http://inside-3.test/", "http://inside-4.test/"),
        *("http://both.test/", "http://public.test@127.0.0.1/", "http://127.0.0.1\\@public.test/"),
        "http://public.test:80@inside-1.test/",
    ),
    "redirect": tuple(f"http://redirect-{number}.test/" for number in range(8)),
    "rebinding": tuple(f"http://rebind-{number}.test/" for number in range(4)),
}
INPUTS = [(kind, url) for kind, urls in INSIDE.items() for url in urls]

TARGETS = (
    *("http://127.0.0.1/", "http://169.254.169.254/latest/", "http://[::1]/", "http://2130706433/"),
    *("http://inside-1.test/", "//127.0.0.1/", "http://[::ffff:127.0.0.1]/", "gopher://127.0.0.1:6379/_INFO"),
)
"""Where the site of `redirect-N.test` sends whoever asks."""

NAMES: Mapping[str, tuple[str, ...]] = {
    **{"localhost": ("127.0.0.1",), "public.test": (PUBLIC,), "both.test": (PUBLIC, "10.0.0.1")},
    **{"inside-1.test": ("127.0.0.1",), "inside-2.test": ("10.1.2.3",), "inside-3.test": ("169.254.169.254",)},
    **{"inside-4.test": ("::1",), **{f"redirect-{number}.test": (PUBLIC,) for number in range(8)}},
}
REBOUND = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1")
"""What `rebind-N.test` leads to from the second look-up on."""


@dataclass
class Network:
    """Stands in for the network: `reached` has each place inside to which a connection was attempted."""

    site: int = 0
    reached: list[str] = field(default_factory=list)
    public: int = 0
    lookups: dict[str, int] = field(default_factory=dict)
    watching: bool = False

    def resolve(self, host: Any, port: Any, *more: Any, **options: Any) -> list[Any]:
        """In place of `getaddrinfo`. What looks like a number is read as this system reads it."""
        name = str(host.decode() if isinstance(host, bytes) else host).rstrip(".").lower()
        number = self.lookups[name] = self.lookups.get(name, 0) + 1
        if name.startswith("rebind-"):
            addresses: tuple[str, ...] = (PUBLIC,) if number == 1 else (REBOUND[int(name[7])],)
        elif (addresses := NAMES.get(name, ())) == ():
            options["flags"] = socket.AI_NUMERICHOST
            return REAL_LOOKUP(host, port, *more[:2], **{k: v for k, v in options.items() if k != "flags"})[:8]
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, int(port or 0)))
            for one in addresses
        ]

    async def connect(self, loop: Any, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """In place of a loop's `create_connection`."""
        if host == PUBLIC:
            self.public += 1
            return await REAL_CONNECT(loop, factory, "127.0.0.1", self.site)
        if host is not None:
            self.reached.append(f"{host}:{port}")
            raise ConnectionRefusedError(f"nothing is at {host}")
        return await REAL_CONNECT(loop, factory, **options)

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what connects past the loop, as an audit hook."""
        if self.watching and event == "socket.connect" and isinstance(arguments[1], tuple):
            host, port = arguments[1][:2]
            if port != self.site and nonpublic_range(str(host)):
                self.reached.append(f"{host}:{port}")


REAL_LOOKUP = socket.getaddrinfo
REAL_CONNECT = asyncio.BaseEventLoop.create_connection
NETWORK = Network()
sys.addaudithook(NETWORK.note)  # it can't be taken away again, so there is one for all tests


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            host = next((line[5:].strip() for line in head.split("\r\n") if line.lower().startswith("host:")), "")
            if host.startswith("redirect-"):
                place = f"HTTP/1.1 302 Found\r\nLocation: {TARGETS[int(host[9])]}\r\nContent-Length: 0\r\n"
                writer.write(f"{place}Connection: close\r\n\r\n".encode())
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(redirect, "127.0.0.1", 0)
    NETWORK.site, NETWORK.watching = server.sockets[0].getsockname()[1], True
    NETWORK.reached, NETWORK.lookups, NETWORK.public = [], {}, 0

    async def connect(loop: Any, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await NETWORK.connect(loop, factory, host, port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", connect)
    monkeypatch.setattr(socket, "getaddrinfo", NETWORK.resolve)
    try:
        yield NETWORK
    finally:
        NETWORK.watching = False
        server.close()


@dataclass
class Server:
    """A server that others use, with a key, and an agent on it whose model calls what a test says."""

    app: Api
    http: httpx.AsyncClient
    library: AsyncPerdure
    agent_id: str
    next_call: list[Any]

    async def use_tool(self, name: str, **arguments: Any) -> None:
        """Have the agent call a tool."""
        self.next_call[:] = [calls(name, **arguments), says("done")]
        body = {"messages": [{"role": "user", "content": "go"}]}
        answer = await self.http.post(f"/v1/agents/{self.agent_id}/messages", json=body)
        assert answer.status_code == 200, answer.text

    async def post(self, path: str, body: Any) -> httpx.Response:
        return await self.http.post(path, json=body)


@pytest.fixture
async def server(network: Network) -> AsyncIterator[Server]:
    next_call: list[Any] = []
    model = ScriptedModel(otherwise=lambda request: next_call.pop(0))
    settings = Settings(model=MODEL, embedding="none", secret_key="for tests, of some length")
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings) as library:
        agent = await library.create_agent("ann")
        for tool in ("fetch_webpage", "index_output"):
            await agent.tools.attach(tool)
        app = create_app(library, ServerConfig(api_key=KEY))
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE, headers=headers) as http:
            yield Server(app, http, library, agent.id, next_call)


NUMBERS = itertools.count()
Fetch = Callable[[Server, str], Awaitable[Any]]


async def fetch_page(server: Server, url: str) -> None:
    await server.use_tool("fetch_webpage", url=url)


async def index_page(server: Server, url: str) -> None:
    await server.use_tool("index_output", url=url)


async def show_image(server: Server, url: str) -> None:
    image = {"type": "image", "source": {"type": "url", "url": url}}
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, image]}]}
    server.next_call[:] = [says("nice")]
    await server.post(f"/v1/agents/{server.agent_id}/messages", body)
    with contextlib.suppress(PerdureError):  # the form of the request may have been refused before the address was
        await server.library.app.fetch_image(ImageLink(url))


async def report_run(server: Server, url: str) -> None:
    callback = server.app.state.gate.callback(url)
    with contextlib.suppress(PerdureError):
        await server.library.app.ports.send_report(callback, {"run": "ended"})


async def register_provider(server: Server, url: str) -> None:
    provider = {"provider_type": "openai", "api_key": "sk-1", "base_url": url}
    await server.post("/v1/providers/check", provider)
    answer = await server.post("/v1/providers/", provider | {"name": f"p{next(NUMBERS)}"})
    if answer.status_code == 200:
        await server.http.patch(f"/v1/providers/{answer.json()['id']}/refresh")


async def register_mcp(server: Server, url: str) -> None:
    for kind in ("streamable_http", "sse"):
        config = {"mcp_server_type": kind, "server_url": url}
        answer = await server.post("/v1/mcp-servers/", {"server_name": f"s{next(NUMBERS)}", "config": config})
        if answer.status_code == 200:
            await server.http.patch(f"/v1/mcp-servers/{answer.json()['id']}/refresh")


async def ask_proxy(server: Server, url: str) -> None:
    """What code in the sandbox may send to the proxy of its network, even if its tool lists every public host."""
    proxy = ForwardProxy(admit_listed(["*"]))
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    await proxy.start(listener)
    try:
        with contextlib.suppress(ValueError):
            parts = urlsplit(url)
            host = parts.hostname or ""
            host = f"[{host}]" if ":" in host else host
            heads = [
                f"CONNECT {host}:80 HTTP/1.1\r\nHost: {host}\r\n\r\n",
                f"GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n",
            ]
            for head in heads:
                await asyncio.to_thread(_send, address, head.encode("utf-8", "replace"))
    finally:
        await proxy.close()


def _send(address: Any, head: bytes) -> None:
    """Send a request to the proxy, and read the beginning of its answer."""
    NETWORK.watching = False  # the proxy itself is on this machine
    with socket.create_connection(address, timeout=5) as connection:
        NETWORK.watching = True
        connection.sendall(head)
        connection.settimeout(5)
        with contextlib.suppress(OSError):
            connection.recv(4_096)


PLACES: Mapping[str, Fetch] = {
    "fetch_webpage": fetch_page,
    "index_output": index_page,
    "an image": show_image,
    "a callback": report_run,
    "a provider": register_provider,
    "an MCP server": register_mcp,
    "the sandbox's proxy": ask_proxy,
}


USES = {"an MCP server": pytest.mark.uses("mcp")}


@pytest.mark.slow
@pytest.mark.parametrize("place", [pytest.param(place, marks=USES.get(place, ())) for place in PLACES])
async def test_no_input_reaches_what_is_inside(place: str, server: Server, network: Network) -> None:
    """Private, loopback, link-local, mapped and decimal addresses, names, redirects and rebinding: 0 reached."""
    reached: list[tuple[str, str, str]] = []
    for kind, url in INPUTS:
        network.reached.clear()
        for _ in range(2):  # a name that rebinds does so at the second time
            await PLACES[place](server, url)
        reached += [(kind, url, one) for one in network.reached]

    print(f"{place}: {len(INPUTS)} inputs, {len(reached)} reached, {network.public} connections to the public site")
    assert reached == []
    assert len(INPUTS) >= 60
    assert network.public > 0, "nothing was fetched at all, so nothing was shown"


async def test_the_stand_in_sees_what_is_reached(network: Network) -> None:
    """Without the guard every kind of input would be noted."""
    async with httpx.AsyncClient(follow_redirects=True, trust_env=False) as client:
        for kind in INSIDE:
            network.reached.clear()
            for url in INSIDE[kind]:
                for _ in range(2):
                    with contextlib.suppress(httpx.HTTPError, httpx.InvalidURL):
                        await client.get(url)
            inside = [one for one in network.reached if is_inside(one.rsplit(":", 1)[0])]
            assert inside, kind


def is_inside(host: str) -> bool:
    """Whether a name or address of the tests leads inside."""
    try:
        return nonpublic_range(str(ipaddress.ip_address(host))) is not None
    except ValueError:
        return True
