"""Addresses that a stranger chose lead to public places only, and to the very address that was judged."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import AddressRefused
from perdure.toolbox.web_guard import GuardedTransport, WebGuard, nonpublic_range, resolve
from tests.support.cases import for_each
from tests.toolbox.names import PUBLIC, PUBLIC_TOO, Names, certificate
from tests.toolbox.web_site import page, serving


@for_each(
    [
        *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.31.0.1", "192.168.0.1", "169.254.169.254"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "203.0.113.9", "224.0.0.1"),
        *("255.255.255.255", "::", "::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::"),
        *("2002:a9fe:a9fe::1", "2001:0:7f00:1::", "2001:db8::1", "100::1", "5f00::1", "3fff::1"),
    ]
)
def test_what_is_not_public_is_refused(address: str) -> None:
    """Every form in which a private, reserved, local or metadata address can be written."""
    assert nonpublic_range(address)


@pytest.mark.parametrize("address", [PUBLIC, PUBLIC_TOO, "8.8.8.8", "172.32.0.1", "::ffff:8.8.8.8", "2002:808:808::1"])
def test_what_is_public_is_not_refused(address: str) -> None:
    assert nonpublic_range(address) is None


@given(st.ip_addresses(v=4))
def test_a_translated_address_is_judged_as_the_one_it_carries(address: ipaddress.IPv4Address) -> None:
    """Mapped, NAT64 and 6to4 forms of an address are as public as it is, and no public address is one Python calls
    private."""
    refused = nonpublic_range(str(address))
    carried = [
        f"::ffff:{address}",
        f"64:ff9b::{address}",
        str(ipaddress.IPv6Address((0x2002 << 112) | int(address) << 80)),
    ]

    assert [nonpublic_range(form) for form in carried] == [refused] * 3
    assert refused or (address.is_global and not address.is_multicast)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://2130706433/", "unusual way"),
        ("http://0x7f000001/", "unusual way"),
        ("http://0x7f.1/", "unusual way"),
        ("http://017700000001/", "unusual way"),
        ("http://127.1/", "unusual way"),
        ("http://127.0.0.1./", "this machine"),
        ("http://[::ffff:7f00:1]/", "this machine"),
        ("http://someone:word@example.com/", "user name or password"),
        ("http://example.com:22/", "port 22"),
        ("ftp://example.com/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("http:///path", "no host"),
        ("http://localhost/", "this machine"),
    ],
)
async def test_odd_addresses_are_refused(url: str, why: str) -> None:
    """Before anything is connected, and without repeating what is secret in them."""
    with pytest.raises(AddressRefused, match=why) as refused:
        await WebGuard().resolve_url(httpx.URL(url))

    assert "word" not in refused.value.address


async def test_a_name_that_no_host_can_have_is_not_resolved() -> None:
    """Python has another error for it than for a name that nobody has."""
    with pytest.raises(OSError, match="not the name of a host"):
        await resolve("example..com", 80)


async def test_one_private_address_among_public_ones_is_enough() -> None:
    """A name that leads to both was made to."""
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1"):
        await WebGuard(resolver=Names([PUBLIC, "10.0.0.1"])).resolve_url(httpx.URL("https://example.com/"))


async def test_a_name_that_rebinds_leads_to_the_address_that_was_judged() -> None:
    """The name is resolved once for a request, and the connection goes to what was judged, under the name's own Host
    and server name."""
    names, requests = Names([PUBLIC], ["127.0.0.1"]), []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200)

    transport = GuardedTransport(WebGuard(resolver=names), inner=httpx.MockTransport(answer))
    async with httpx.AsyncClient(transport=transport) as client:
        await client.get("https://rebinds.example/a?b=c")
        with pytest.raises(AddressRefused, match="this machine"):
            await client.get("https://rebinds.example/a?b=c")

    assert names.lookups == 2
    assert [str(request.url) for request in requests] == [f"https://{PUBLIC}/a?b=c"]
    assert requests[0].headers["host"] == "rebinds.example"
    assert requests[0].extensions["sni_hostname"] == "rebinds.example"


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    """Names have addresses of both kinds, and a machine often reaches one kind only."""
    hosts = []

    def answer(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        if request.url.host == PUBLIC_TOO:
            raise httpx.ConnectError("no route")
        return httpx.Response(200)

    guard = WebGuard(resolver=Names([PUBLIC_TOO, PUBLIC]))
    transport = GuardedTransport(guard, inner=httpx.MockTransport(answer))
    async with httpx.AsyncClient(transport=transport) as client:
        await client.get("http://example.com/")

    assert hosts == [PUBLIC_TOO, PUBLIC]


async def test_allowed_hosts_may_be_anywhere() -> None:
    """By name, or by name and port; another port of the same name is not meant."""
    guard = WebGuard(["wiki.internal", "127.0.0.1:8000"], resolver=Names(["10.0.0.7"]))

    assert (await guard.resolve_url(httpx.URL("http://WIKI.internal:9000/")))[1] == ("10.0.0.7",)
    assert (await guard.resolve_url(httpx.URL("http://127.0.0.1:8000/")))[1] == ("127.0.0.1",)
    for url in ("http://127.0.0.1:8080/", "http://other.internal/", "http://a:b@wiki.internal/"):
        with pytest.raises(AddressRefused):
            await guard.resolve_url(httpx.URL(url))


async def test_the_certificate_is_that_of_the_name(tmp_path: Path) -> None:
    """Though the connection goes to an address, TLS asks for the name, and another name's certificate is not taken."""
    server_context, client_context = certificate("site.test", tmp_path)
    async with serving({"/": page(b"hello")}, ssl=server_context) as site:
        guard = WebGuard(["site.test", "other.test"], resolver=Names(["127.0.0.1"]))
        async with httpx.AsyncClient(transport=GuardedTransport(guard, verify=client_context)) as client:
            answer = await client.get(site.url(host="site.test", scheme="https"))
            with pytest.raises(httpx.ConnectError, match=r"other\.test"):
                await client.get(site.url(host="other.test", scheme="https"))

    assert answer.text == "hello"


async def test_slow_name_servers_hold_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many look-ups hang, the threads that the process shares are free."""
    hang = threading.Event()

    def slow(*arguments: object, **options: object) -> list[Any]:
        hang.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    hanging = [asyncio.create_task(resolve("slow.test", 80)) for _ in range(40)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(int, "1") == 1
    finally:
        hang.set()
    await asyncio.gather(*hanging)
