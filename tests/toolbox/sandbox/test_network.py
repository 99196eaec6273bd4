"""A network for jobs that declare it, in a sandbox whose owner allows it: the internet family, and nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.toolbox.sandbox.cages import Cage
from tests.toolbox.sandbox.conftest import options_of

SERVERS = ["root", "user", "user without namespaces"]
CONNECT = """
import socket
def f(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as made:
        return made.recv(100).decode()
"""


@pytest.fixture(scope="module", params=SERVERS)
def networked(request: pytest.FixtureRequest) -> Iterator[Cage]:
    made = Cage(network=True, **options_of(request.param))
    if not made.isolation.enough:
        made.close()
        pytest.skip(made.isolation.summary)
    yield made
    made.close()


@pytest.fixture
def port() -> Iterator[int]:
    """Where somebody says hello."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            try:
                with listener.accept()[0] as connection:
                    connection.sendall(b"hello")
            except OSError:
                return

        threading.Thread(target=greet, daemon=True).start()
        yield listener.getsockname()[1]


def test_a_job_that_declares_it_reaches_a_server(networked: Cage, port: int) -> None:
    result = networked.run(CONNECT, "f", arguments={"port": port}, network=True)

    assert result.value == "hello", result


def test_a_job_that_does_not_declare_it_reaches_nothing(networked: Cage, port: int) -> None:
    result = networked.run(CONNECT, "f", arguments={"port": port})

    assert "PermissionError" in result.error or "Operation not permitted" in result.error


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket(socket.AF_UNIX)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "open('/proc/1/environ').read()",
        "open('/etc/shadow').read()",
    ],
)
def test_a_network_opens_nothing_else(networked: Cage, attempt: str) -> None:
    """No unix sockets, no raw ones, no files."""
    result = networked.run(f"import socket\n{attempt}", network=True)

    assert result.status == "error"
    assert "Error" in result.error


def test_names_are_resolved_as_the_machine_does(networked: Cage) -> None:
    """The resolver's settings are there; nothing is asked of it here."""
    result = networked.run("import socket\nsocket.getaddrinfo('localhost', 80)[0][4][0]", network=True)
    settings = networked.run("open('/etc/resolv.conf').read()", network=True)

    assert result.value in {"127.0.0.1", "::1"}, result
    if next(one for one in networked.isolation.measures if one.name == "work folder").held:
        assert settings.value == Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace")
