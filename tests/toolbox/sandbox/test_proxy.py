"""The forward proxy serves only users who send its password."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Sequence

import pytest

from perdure.core.errors import AddressRefused
from perdure.toolbox.sandbox.proxy import ForwardProxy


def basic(user: str, password: str) -> str:
    return f"Proxy-Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}\r\n"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (basic("perdure", "right"), 403),  # let in, and the host is refused
        (basic("perdure", "wrong"), 407),
        (basic("perdure", ""), 407),
        (basic("somebody", "right"), 407),
        ("Proxy-Authorization: Bearer right\r\n", 407),
        ("Proxy-Authorization: \r\n", 407),
        ("", 407),
    ],
)
async def test_a_request_without_the_password_is_refused(header: str, status: int) -> None:
    """The answer is 407, and no host is looked at."""
    hosts: list[str] = []

    async def admit(host: str, port: int) -> Sequence[str]:
        hosts.append(host)
        raise AddressRefused(host, "no host is allowed")

    proxy = ForwardProxy(admit, password="right")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    await proxy.start(listener)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"CONNECT index.test:443 HTTP/1.1\r\nHost: index.test:443\r\n{header}\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
    finally:
        await proxy.close()

    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert hosts == (["index.test"] if status == 403 else [])
