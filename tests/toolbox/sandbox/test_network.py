"""Jobs that list hosts: a network of their own, whose only way out is a proxy that leads to those and nowhere else.

Names are resolved by a table of the test, so that nothing outside of this machine is asked.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure.core.tools.sandbox import SandboxLimits, SandboxResult
from perdure.toolbox.sandbox import linux
from perdure.toolbox.sandbox.proxy import admit_listed
from tests.toolbox.sandbox.cages import Cage
from tests.toolbox.sandbox.conftest import options_of
from tests.toolbox.sandbox.ground import Ground

NAMES = {
    "api.test": ["127.0.0.1"],
    "inside.test": ["127.0.0.1"],
    "deep.sub.test": ["127.0.0.1"],
    "metadata.test": ["169.254.169.254"],
    "two.test": ["8.8.8.8", "10.0.0.1"],
}
FETCH = """
import urllib.request, urllib.error
def f(url):
    try:
        with urllib.request.urlopen(url, timeout=8) as answer:
            return [answer.status, answer.read(200).decode()]
    except urllib.error.HTTPError as error:
        return [error.code, error.read(500).decode()]
"""
TUNNEL = """
import socket
def f(host, port, head=None, then=b"GET / HTTP/1.0\\r\\n\\r\\n"):
    with socket.create_connection(("127.0.0.1", 3128), timeout=8) as proxy:
        proxy.sendall((head or f"CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n").encode())
        answer = proxy.recv(2000).decode()
        if " 200 " not in answer.split("\\r\\n")[0]:
            return answer.split("\\r\\n")[0] + "|" + answer.rpartition("\\r\\n")[2]
        proxy.sendall(then)
        told = b""
        while part := proxy.recv(2000):
            told += part
        return told.decode()
"""


class Site:
    """An HTTP server that answers hello and records its requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"hello")

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture(scope="module")
def shared_site() -> Iterator[Site]:
    made = Site()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def site(shared_site: Site) -> Site:
    shared_site.requests.clear()
    return shared_site


@pytest.fixture(scope="module", params=["root", "user"])
def networked(request: pytest.FixtureRequest, shared_site: Site) -> Iterator[Cage]:
    """A sandbox whose owner allows networks, and lets tools list `api.test` and names below `sub.test`."""
    port = shared_site.port

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host not in NAMES:
            raise OSError(f"no such name: {host}")
        return NAMES[host]

    def admitting(hosts: Sequence[str], private: Sequence[str]) -> Any:
        return admit_listed(hosts, private, resolver=resolve)

    patch = pytest.MonkeyPatch()
    patch.setattr(linux, "admit_listed", admitting)
    private = (f"api.test:{port}", "deep.sub.test", f"127.0.0.1:{port}")
    made = Cage(network=True, private_hosts=private, **options_of(request.param))
    try:
        if not next(measure for measure in made.isolation.measures if measure.name == "hosts").works:
            pytest.skip("this machine has no network namespaces")
        yield made
    finally:
        made.close()
        patch.undo()


def fetch(cage: Cage, url: str, *hosts: str) -> SandboxResult:
    return cage.run(FETCH, "f", arguments={"url": url}, network=hosts)


def tunnel(cage: Cage, host: str, port: int, *hosts: str) -> str:
    result = cage.run(TUNNEL, "f", arguments={"host": host, "port": port}, network=hosts)
    return str(result.value if result.status == "success" else result.error)


@pytest.mark.slow
def test_a_job_reaches_a_host_that_it_lists(networked: Cage, site: Site) -> None:
    """By name, through plain requests and tunnels; the server sees the host's name, and no proxy."""
    plain = fetch(networked, f"http://api.test:{site.port}/a?b=c", f"api.test:{site.port}")
    through = tunnel(networked, "API.test", site.port, f"api.test:{site.port}")

    assert plain.value == [200, "hello"], plain
    assert through.endswith("hello")
    assert [path for path, _ in site.requests] == ["/a?b=c", "/"]
    headers = site.requests[0][1]
    assert (headers["host"], headers["connection"]) == (f"api.test:{site.port}", "close")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "listed", "why"),
    [
        ("inside.test", "api.test:{port}", "may reach api.test:"),
        ("api.test", "api.test", "may reach api.test only"),
        ("api.test", "other.test", "may reach other.test only"),
        ("api.test", "*:{port}", "which is this machine"),
        ("inside.test", "inside.test:{port}", "which is this machine"),
        ("deep.sub.test", "*.sub.test:{port}", "which is this machine"),
        ("sub.test", "*.sub.test:{port}", "may reach *.sub.test:"),
        ("evilsub.test", "*.sub.test:{port}", "may reach *.sub.test:"),
        ("metadata.test", "metadata.test:{port}", "where clouds keep their metadata"),
        ("two.test", "*:{port}", "which is a private network"),
        ("localhost", "*:{port}", "no such name"),
        ("127.0.0.1", "*:{port}", "which is this machine"),
        ("127.0.0.1", "api.test:{port}", "may reach api.test:"),
        ("10.0.0.1", "10.0.0.1:{port}", "which is a private network"),
        ("169.254.169.254", "*:{port}", "where clouds keep their metadata"),
        ("[::1]", "*:{port}", "which is this machine"),
        ("[::ffff:127.0.0.1]", "*:{port}", "which is this machine"),
        ("2130706433", "*:{port}", "written in an unusual way"),
        ("0x7f.1", "*:{port}", "written in an unusual way"),
    ],
)
def test_nothing_else_is_reached(networked: Cage, site: Site, host: str, listed: str, why: str) -> None:
    """Names that are not listed, ports that are not, whatever leads inside and is not named by both lists."""
    answer = tunnel(networked, host, site.port, listed.format(port=site.port))
    plain = fetch(networked, f"http://{host}:{site.port}/", listed.format(port=site.port))

    assert why in answer
    assert plain.status == "error" or plain.value[0] in {400, 403, 502}, plain
    assert site.requests == []


@pytest.mark.parametrize(
    "head",
    [
        "CONNECT api.test HTTP/1.1\r\n\r\n",
        "CONNECT api.test:{port}/x HTTP/1.1\r\n\r\n",
        "CONNECT user@api.test:{port} HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n",
        "GET https://api.test:{port}/ HTTP/1.1\r\n\r\n",
        "GET file:///etc/passwd HTTP/1.1\r\n\r\n",
        "GET http://api.test:{port}/ HTTP/1.1\r\nX : y\r\n\r\n",
        "GET http://api.test:{port}/ HTTP/1.1\r\nX: y\nHost: inside.test\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET http://api.test:{port}/" + 20_000 * "a" + " HTTP/1.1\r\n\r\n",
    ],
)
def test_requests_that_are_none_are_refused(networked: Cage, site: Site, head: str) -> None:
    arguments = {"host": "api.test", "port": site.port, "head": head.format(port=site.port)}
    result = networked.run(TUNNEL, "f", arguments=arguments, network=(f"api.test:{site.port}",))

    assert "HTTP/1.1 400 " in str(result.value) or "Error" in result.error, result
    assert site.requests == []


def test_a_request_can_t_name_another_host_than_the_one_that_was_judged(networked: Cage, site: Site) -> None:
    head = f"GET http://api.test:{site.port}/ HTTP/1.1\r\nHost: inside.test\r\nProxy-Authorization: x\r\n\r\n"
    source = TUNNEL.replace('" 200 " not in', '"nowhere" not in')
    arguments = {"host": "", "port": 0, "head": head}

    networked.run(source, "f", arguments=arguments, network=(f"api.test:{site.port}",))

    assert site.requests[0][1]["host"] == f"api.test:{site.port}"
    assert "proxy-authorization" not in site.requests[0][1]


@pytest.fixture(scope="module")
def ground(networked: Cage) -> Iterator[Ground]:
    settings = networked.sandbox._settings
    made = Ground(python=settings.python, user=settings.user)
    yield made
    made.close()


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.create_connection(('127.0.0.1', {tcp}), timeout=3)",
        "socket.create_connection(('::1', {tcp}), timeout=3)",
        "socket.create_connection(('10.255.255.1', 9), timeout=3)",
        "socket.create_connection(('169.254.169.254', 80), timeout=3)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))",
        "socket.getaddrinfo('example.com', 80)",
        "socket.socket(socket.AF_UNIX).connect('{ground}/socket')",
        "socket.socket(socket.AF_UNIX).connect('\\0{abstract}')",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "open('/proc/1/environ').read()",
        "open('/etc/shadow').read()",
        "os.listdir('/sys/class/net')",
        "__import__('fcntl').ioctl(socket.socket(), 0x8914, b'lo' + bytes(14) + b'\\0\\0' + bytes(14))",
    ],
)
def test_a_network_opens_nothing_else(networked: Cage, ground: Ground, attempt: str) -> None:
    """No machine past the proxy, no unix sockets, no raw ones, no files."""
    code = attempt.format(**ground.facts) if "{" in attempt else attempt

    result = networked.run(f"import os, socket\n{code}", network=("*",))

    assert result.status == "error", result
    assert "rror: " in result.error
    assert ground.changed() == []


def test_the_proxy_s_socket_is_not_the_code_s(networked: Cage) -> None:
    """It can't answer in the proxy's place: no socket is open where it begins."""
    source = (
        "import os, stat\n"
        "def is_socket(fd):\n    try:\n        return stat.S_ISSOCK(os.fstat(fd).st_mode)\n"
        "    except OSError:\n        return False\n"
        "[fd for fd in range(1024) if is_socket(fd)]"
    )

    assert networked.run(source, network=("*",)).value == []


def test_datagrams_to_this_machine_arrive_nowhere(networked: Cage, ground: Ground) -> None:
    """They are sent into the call's own loopback, where nobody is."""
    source = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))"

    networked.run(source.format(**ground.facts), network=("*",))

    assert ground.changed() == []


def test_a_server_of_its_own_is_seen_by_nobody_else(networked: Cage) -> None:
    """It listens on its own loopback: the port is free on this machine, and the next call does not find it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        source = f"import socket\nmade = socket.create_server(('127.0.0.1', {port}))\n'listens'"
        assert networked.run(source, network=("*",)).value == "listens"
    result = networked.run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=2)", network=("*",))

    assert "ConnectionRefusedError" in result.error


def test_a_job_that_lists_no_host_has_no_socket(networked: Cage, site: Site) -> None:
    result = networked.run(FETCH, "f", arguments={"url": f"http://127.0.0.1:{site.port}/"})

    assert "PermissionError" in result.error or "Operation not permitted" in result.error
    assert site.requests == []


def test_the_proxy_ends_with_the_call(networked: Cage, site: Site) -> None:
    """No descriptor of it is left in the server, also of a call that is ended."""
    before = sockets()
    hang = "import socket, time\ns = socket.create_connection(('127.0.0.1', 3128))\ntime.sleep(60)"
    for _ in range(3):
        networked.run(hang, network=("*",), limits=SandboxLimits(wall_s=0.3))

    assert sockets() <= before


def test_connections_past_the_limit_are_refused(networked: Cage) -> None:
    source = (
        "import socket\nmade = [socket.create_connection(('127.0.0.1', 3128), timeout=8) for _ in range(40)]\n"
        "made[-1].recv(200).decode().split('\\r\\n')[0]"
    )

    assert "503" in networked.run(source, network=("*",)).value


def test_the_administrator_decides(networked: Cage) -> None:
    made = Cage(**options_of("root" if os.geteuid() == 0 else "user"))
    try:
        result = made.run("1", network=("*",))
    finally:
        made.close()

    assert (result.status, "administrator" in result.error) == ("refused", True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["root without namespaces", "user without namespaces"])
def test_without_a_network_namespace_hosts_are_refused(kind: str) -> None:
    """Nothing else could hold the code to them."""
    made = Cage(network=True, **options_of(kind))
    try:
        if not made.isolation.enough:
            pytest.skip(made.isolation.summary)
        result = made.run("1", network=("*",))
        measure = next(measure for measure in made.isolation.measures if measure.name == "hosts")
    finally:
        made.close()

    assert (result.status, "no network namespace" in result.error) == ("refused", True)
    assert (measure.works, "are refused" in measure.meaning) == (False, True)


def sockets() -> int:
    """The number of sockets that this process has open."""
    count = 0
    for path in Path("/proc/self/fd").iterdir():
        try:
            count += str(path.readlink()).startswith("socket:")
        except FileNotFoundError:  # the folder that was read
            continue
    return count
