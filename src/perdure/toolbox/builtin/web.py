"""Fetch a page or a picture within limits on bytes, redirects and seconds."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import cache

import httpx

from perdure.core.errors import BodyUnreadable, DataTooLarge, InvalidInput, ToolError
from perdure.core.incoming.bodies import ACCEPT_ENCODING, image_type_of, unpack
from perdure.core.messages import IMAGE_TYPES
from perdure.toolbox.web_guard import GuardedTransport, WebGuard

REDIRECTS_MAX = 5
USER_AGENT = "Perdure (+fetch_webpage)"
ACCEPT = (
    "text/html, application/xhtml+xml, text/markdown, text/plain, application/pdf, application/json;q=0.9, */*;q=0.1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The limits of one page: `body_bytes` unpacked, `total_s` seconds until it is text, `connect_s` to connect."""

    body_bytes: int = 5_000_000
    total_s: float = 25.0
    connect_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBody:
    """A response: `url` after redirects, `kind` is the server's content type, `charset` is empty if it names none.

    Args:
        cut: the body is longer than the limit; `body` is its start.
    """

    url: str
    status: int
    kind: str
    charset: str
    body: bytes
    cut: bool = False


async def fetch(url: str, guard: WebGuard, *, limits: FetchLimits, accept: str = ACCEPT) -> PageBody:
    """The response to a GET request, within the limits. `accept`: the types that the server is asked for.

    Raises: AddressRefused; ToolError: it can't be reached, takes too long, or answers what can't be read.
    """
    try:
        async with asyncio.timeout(limits.total_s):
            return await _fetch(httpx.URL(url), guard, limits, accept)
    except TimeoutError as error:
        raise ToolError(f"{_host(url)} did not send the page within {limits.total_s:g} s") from error
    except httpx.TooManyRedirects as error:
        raise ToolError(f"{_host(url)} redirected more than {REDIRECTS_MAX} times") from error
    except httpx.InvalidURL as error:
        raise ToolError(f"that is no address of the web: {error}") from error
    except httpx.TimeoutException as error:
        raise ToolError(f"{_host(url)} could not be reached within {limits.connect_s:g} s") from error
    except httpx.HTTPError as error:
        raise ToolError(f"{_host(url)} could not be fetched: {str(error) or type(error).__name__}") from error


async def _fetch(url: httpx.URL, guard: WebGuard, limits: FetchLimits, accept: str) -> PageBody:
    """The response to a GET request. Raises: TimeoutError, httpx.HTTPError, httpx.InvalidURL, ToolError."""
    async with (
        httpx.AsyncClient(
            transport=GuardedTransport(guard, verify=certificates()),
            timeout=httpx.Timeout(limits.total_s, connect=limits.connect_s),
            follow_redirects=True,
            max_redirects=REDIRECTS_MAX,
            trust_env=False,
            headers={"User-Agent": USER_AGENT, "Accept": accept, "Accept-Encoding": ACCEPT_ENCODING},
        ) as client,
        client.stream("GET", url) as response,
    ):
        body, cut = await _read_body(response, limits.body_bytes)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        final_url = response.url.copy_with(fragment=None)
        return PageBody(
            url=str(final_url),
            status=response.status_code,
            kind=kind,
            charset=response.charset_encoding or "",
            body=body,
            cut=cut,
        )


async def _read_body(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    """The unpacked body up to `limit` bytes, and whether it is longer. No more than that is unpacked."""
    content = bytearray()
    try:
        async for piece in unpack(response.aiter_raw(), response.headers.get("content-encoding", ""), limit):
            content += piece
    except DataTooLarge:
        return bytes(content), True
    except BodyUnreadable as error:
        raise ToolError(f"what {response.url.host} sent can't be read: {error}") from error
    return bytes(content), False


@cache
def certificates() -> ssl.SSLContext:
    """The trusted certificates, which take 20 ms to read."""
    return httpx.create_ssl_context(trust_env=False)


def _host(url: str) -> str:
    """The host of a URL for an error text."""
    try:
        return httpx.URL(url).host or "the page"
    except httpx.InvalidURL:
        return "the page"


async def fetch_image(url: str, guard: WebGuard, *, limit_bytes: int) -> tuple[str, bytes]:
    """The media type and the bytes of the picture at this address.

    Raises: InvalidInput: it is no picture, or too large; AddressRefused; ToolError: it can't be reached.
    """
    limits = FetchLimits(body_bytes=limit_bytes)
    page = await fetch(url, guard, limits=limits, accept=", ".join(IMAGE_TYPES))
    shown = page.url[:200]
    if page.status != 200:
        raise InvalidInput(f"the image at {shown} can't be fetched: the server answered with status {page.status}")
    if page.cut:
        raise InvalidInput(f"the image at {shown} has more than {limit_bytes:,} bytes: send a smaller one")
    kind = image_type_of(page.body)
    if kind is None:
        sent = page.kind or "something without a type"
        raise InvalidInput(f"{shown} is no image that can be shown, but {sent}: give a PNG, JPEG, GIF or WebP")
    return kind, page.body
