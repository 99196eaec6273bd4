"""Requests to a server of Letta's API: answers of bounded size, pages by cursors, pauses that the server asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from perdure.core.errors import DataTooLarge, InvalidInput
from perdure.core.incoming.addresses import without_password
from perdure.core.incoming.json_limits import JsonLimits, parse_json

Object = Mapping[str, Any]
Params = Mapping[str, Any]

PAGE = 100
"""So many items a request asks for; one with vectors has 20 kB, so that a page stays below 3 MB."""
TIMEOUT_S = 60.0
TRIES, TRIES_OF_ERRORS = 6, 3
"""How often a request is sent that the server is too busy for, or that can't be sent; and one that ends with 500."""
WAIT_MAX_S = 600.0
"""A server that wants a longer pause than this is left for today."""
ITEMS_MAX = 1_000_000
_ANSWER = JsonLimits(size_bytes=256 << 20, containers=3_000_000)
_BUSY, _PASSING = (429, 503), (408, 409, 500, 502, 504)
_ABSENT = (404, 405, 410, 501)


class LettaUnreachable(InvalidInput):
    """The server can't be reached, stopped answering, or is none of Letta's API. What was imported before it stays."""

    code = InvalidInput.code


class LettaRefused(Exception):
    """The server answered one request with an error. `status`: that of HTTP, 0 where the answer can't be read."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class LettaServer:
    """A server of Letta's API, of which one request at a time is asked.

    Args:
        url: its address, with or without `/v1`.
        key: sent as `Authorization: Bearer`; None: none is sent.
        pause: waits so many seconds.
    Raises: InvalidInput: the address or the key can't be one.
    """

    def __init__(self, url: str, key: str | None, *, pause: Callable[[float], Awaitable[object]] = asyncio.sleep):
        import httpx

        self.url = _base(url)
        if key and not (key.isascii() and key.isprintable()):
            raise InvalidInput("the key has characters that no header can have: copy it once more")
        self.label, self._pause, self._answered = without_password(self.url), pause, False
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._client = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=TIMEOUT_S, follow_redirects=True, max_redirects=3
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def check(self) -> None:
        """Check that the server has Letta's API and accepts the key. Raises: LettaUnreachable."""
        try:
            found: Any = await self.get("/v1/agents/", {"limit": 1}, tries=TRIES_OF_ERRORS)
        except LettaRefused as error:
            if error.status in (401, 403):
                raise LettaUnreachable(f"{self.label} wants a key: give --key, or set LETTA_API_KEY") from error
            found = error
        if not isinstance(found, list):
            raise LettaUnreachable(f"{self.label} is no server of Letta's API: /v1/agents/ answers: {found!s:.200}")

    async def get(self, path: str, params: Params | None = None, *, tries: int = TRIES) -> Any:
        """Return the JSON of an answer. Raises: LettaRefused; LettaUnreachable: no answer came, often enough."""
        import httpx

        from perdure.providers.masking import read_answer
        from perdure.providers.openai_chat.faults import retry_after_s

        problem = ""
        for number in range(tries):
            wait_s = 0.5 * 2**number
            try:
                async with self._client.stream("GET", path, params=params) as response:
                    status, body = response.status_code, await read_answer(response, _ANSWER.size_bytes)
                if status < 300:
                    self._answered = True
                    return parse_json(body, _ANSWER)
            except (httpx.HTTPError, OSError) as error:
                problem = str(error) or type(error).__name__
                await self._pause(wait_s)
                continue
            except (DataTooLarge, ValueError, RecursionError) as error:
                raise LettaRefused(0, f"it can't be read: {error!s:.100}") from error
            problem = f"HTTP {status}"
            if status in _BUSY:
                asked_s = retry_after_s(response.headers, now=datetime.now(UTC))
                if asked_s is not None and asked_s > WAIT_MAX_S:
                    raise LettaUnreachable(f"{self.label} wants a pause of {asked_s:,.0f} s: import later")
                await self._pause(wait_s if asked_s is None else asked_s)
            elif status in _PASSING and number + 1 < TRIES_OF_ERRORS:
                await self._pause(wait_s)
            else:
                raise LettaRefused(status, problem)
        helps = "what was imported stays, and the same import goes on there"
        if not self._answered:
            helps = "nothing was imported. Look whether the server runs, and whether this is its address"
        raise LettaUnreachable(f"{self.label} does not answer ({problem:.200}): {helps}")

    async def find(self, path: str, params: Params | None = None) -> Any:
        """As `get`; None: the server has no such object or route."""
        try:
            return await self.get(path, params)
        except LettaRefused as error:
            if error.status in _ABSENT:
                return None
            raise

    async def pages(
        self, path: str, params: Params | None = None, *, after: str = "", field: str = ""
    ) -> AsyncIterator[Sequence[Object]]:
        """Yield the pages of a list, oldest first, behind the item `after`, or all where the server has that one no
        more; none where it has no such list. `field`: where an answer that is an object has the list.

        Raises: LettaRefused, LettaUnreachable.
        """
        last: frozenset[str] = frozenset()
        query = {"limit": PAGE, "order": "asc", **(params or {})}
        for number in range(ITEMS_MAX):
            try:
                found = await (self.get(path, {**query, "after": after}) if after else self.find(path, query))
            except LettaRefused as error:
                if number or not after or error.status not in (400, 404, 422):
                    raise
                found = await self.find(path, query)
            found = found.get(field) if isinstance(found, dict) else found
            page = [one for one in found or () if isinstance(one, dict) and isinstance(one.get("id"), str)]
            fresh = [one for one in page if one["id"] not in last]
            if not fresh:
                # A list that has ended is not cut; one message may be several items.
                if len(page) == query["limit"] or (len(page) > query["limit"] and path.endswith("/messages")):
                    raise LettaRefused(0, "it gives the same page whatever the cursor, so that the rest is unknown")
                return
            yield fresh
            last, after = frozenset(one["id"] for one in page), page[-1]["id"]

    async def items(self, path: str, params: Params | None = None, *, field: str = "") -> AsyncIterator[Object]:
        """Yield each item of a list once; parameters as of `pages`."""
        seen: set[str] = set()
        async for page in self.pages(path, params, field=field):
            fresh = [one for one in page if one["id"] not in seen]
            if not fresh:
                return
            seen |= {one["id"] for one in fresh}
            for one in fresh:
                yield one


def path_of(*parts: str) -> str:
    """Return a path below `/v1` of these parts, whatever is in them."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _base(url: str) -> str:
    """Return the address of a server without a path of the API. Raises: InvalidInput."""
    text = url.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or parts.query or parts.fragment:
        raise InvalidInput(
            f"{without_password(url)!r:.200} is no address of a server: give one such as http://127.0.0.1:8283"
        )
    return text.removesuffix("/v1").rstrip("/")
